"""Networks for elsewhere: small files, plain torch, ONNX and torch.export programs."""

from bayeslim.export.onnx_graph import export_onnx as export_onnx
from bayeslim.export.plain import export_torch as export_torch
from bayeslim.export.plain import mean_network as mean_network
from bayeslim.export.program import export_program as export_program
from bayeslim.export.samples import sample_networks as sample_networks
from bayeslim.export.slim import load_slim as load_slim
from bayeslim.export.slim import save_slim as save_slim

__all__ = [
    "export_onnx",
    "export_program",
    "export_torch",
    "load_slim",
    "mean_network",
    "sample_networks",
    "save_slim",
]
