"""What serves the whole library: seeds, turns between threads, modes, things changed for a while, time and memory."""
