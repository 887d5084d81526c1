"""bayeslim."""
