"""Networks of the papers, as plain torch modules; `bayesianize_` makes them Bayesian."""

from bayeslim.models.lenet import lenet5_caffe as lenet5_caffe
from bayeslim.models.lenet import lenet_300_100 as lenet_300_100
from bayeslim.models.mlp import ACTIVATIONS as ACTIVATIONS
from bayeslim.models.mlp import mlp as mlp

__all__ = ["ACTIVATIONS", "lenet5_caffe", "lenet_300_100", "mlp"]
