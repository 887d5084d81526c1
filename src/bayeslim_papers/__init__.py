"""Experiments: a frozen Config, `run(config) -> Result`, one file each."""
