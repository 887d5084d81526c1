"""Networks of the papers, as plain torch modules; `bayesianize_` makes them Bayesian."""

from bayeslim.models.autoencoder import conv_autoencoder as conv_autoencoder
from bayeslim.models.autoencoder import dense_autoencoder as dense_autoencoder
from bayeslim.models.cnn import cnn_k_tied as cnn_k_tied
from bayeslim.models.lenet import lenet5 as lenet5
from bayeslim.models.lenet import lenet5_caffe as lenet5_caffe
from bayeslim.models.lenet import lenet_300_100 as lenet_300_100
from bayeslim.models.lstm import LSTMClassifier as LSTMClassifier
from bayeslim.models.mlp import ACTIVATIONS as ACTIVATIONS
from bayeslim.models.mlp import mlp as mlp
from bayeslim.models.resnet import resnet18 as resnet18
from bayeslim.models.resnet import resnet34 as resnet34
from bayeslim.models.resnet import resnet50 as resnet50
from bayeslim.models.resnet import resnet_k_tied as resnet_k_tied
from bayeslim.models.transformer import TransformerClassifier as TransformerClassifier
from bayeslim.models.vgg import vgg_like as vgg_like
from bayeslim.models.vit import ViT as ViT
from bayeslim.models.vit import vit_s16 as vit_s16
from bayeslim.models.vit import vit_small as vit_small

__all__ = [
    "ACTIVATIONS",
    "LSTMClassifier",
    "TransformerClassifier",
    "ViT",
    "cnn_k_tied",
    "conv_autoencoder",
    "dense_autoencoder",
    "lenet5",
    "lenet5_caffe",
    "lenet_300_100",
    "mlp",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet_k_tied",
    "vgg_like",
    "vit_s16",
    "vit_small",
]
