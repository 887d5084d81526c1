"""Which method to choose: all of them, and the usual baselines, on the same data, network and epochs."""
