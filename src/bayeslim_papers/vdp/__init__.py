"""VDP++ (Epifano et al. 2024): mean and variance in one pass, on MNIST (`mnist`) and with deep networks (`images`)."""
