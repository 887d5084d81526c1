"""Triton kernels: each does in one pass what eager operations do in many. Imported only where CUDA is."""
