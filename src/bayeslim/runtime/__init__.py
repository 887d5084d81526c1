"""What serves the whole library: seeds, threads, progress, modes, what is changed for a while, time and memory."""
