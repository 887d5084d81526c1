"""The k-tied Normal posterior (arXiv 2002.02655): one module per network, what they share in `part`."""
