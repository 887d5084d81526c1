"""What serves the whole library: seeds, turns between threads, progress bars, modes, things changed for a while, time and memory."""
