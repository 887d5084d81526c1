"""The dissertation: what variational layers prune, and where its sparsities come from."""
