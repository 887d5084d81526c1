"""Deep networks of images on one GPU: samplers that prune, and moments through every layer.

- `samplers`: CV-Adam, DFP and DPF with ResNet-18 on CIFAR-10 (arXiv 2210.12957, table 1);
- `vdp_cifar`: VDP++ with ResNet-18 on CIFAR-10 (Epifano et al. 2024);
- `vdp_vit`: VDP++ with a small vision transformer on MNIST.

The images stay on the device as bytes and are varied there (`images`); a step's gradient is one CUDA graph
(`training`). Each experiment is a frozen dataclass (`experiment`), run from the command line by `command`.
"""
