"""What is given for an argument and cannot be one is refused, with what to pass instead."""
