"""Networks by name, in the shape that the data need."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from bayeslim import likelihoods, methods, models
from bayeslim.checks.names import check_name
from bayeslim.convert import bayesianize_
from bayeslim.data.columns import TableInputs
from bayeslim.data.image_inputs import ImageInputs
from bayeslim.data.preprocessing import Inputs, Preprocessing
from bayeslim.data.text_inputs import TextInputs
from bayeslim.likelihoods.base import Likelihood
from bayeslim.runtime.seeds import seeded
from bayeslim.train_config import TrainConfig

__all__ = ["MODELS", "build_network", "likelihood_for", "resolved_device"]

Builder = Callable[[Inputs, int, tuple[int, ...]], nn.Module]


def _mlp(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    if isinstance(inputs, TextInputs):
        raise _misfit("mlp", "tables and images", inputs)
    plain = models.mlp([math.prod(inputs.shape), *hidden, outputs])
    return nn.Sequential(nn.Flatten(), *plain) if isinstance(inputs, ImageInputs) else plain


def _lenet_300_100(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    return _mlp(inputs, outputs, (300, 100))


def _lenet_5(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    if inputs.shape != (1, 28, 28):
        raise _misfit("lenet-5", "grey images of 28 x 28", inputs)
    network = models.lenet5_caffe()
    if outputs != 10:
        network[-1] = nn.Linear(500, outputs)
    return network


def _vgg(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    if inputs.shape != (3, 32, 32):
        raise _misfit("vgg", "colour images of 32 x 32", inputs)
    return models.vgg_like(classes=outputs, dropout=False)


def _resnet18(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    if not isinstance(inputs, ImageInputs) or inputs.shape[0] != 3:
        raise _misfit("resnet18", "colour images", inputs)
    return models.resnet18(classes=outputs)


def _vit_small(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    if not isinstance(inputs, ImageInputs) or inputs.shape[1] != inputs.shape[2] or inputs.shape[1] % 4:
        raise _misfit("vit-small", "square images whose side is a multiple of 4", inputs)
    channels, side, _ = inputs.shape
    return models.ViT(image=side, patch=side // 4, channels=channels, classes=outputs)


def _lstm(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    if not isinstance(inputs, TextInputs):
        raise _misfit("lstm", "texts", inputs)
    return models.LSTMClassifier(inputs.vocabulary, outputs=outputs)


def _transformer(inputs: Inputs, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    if not isinstance(inputs, TextInputs):
        raise _misfit("transformer", "texts", inputs)
    return models.TransformerClassifier(
        inputs.vocabulary, classes=outputs, max_length=inputs.length, padding_mask=True, dropout=0.0
    )


MODELS: dict[str, Builder] = {
    "mlp": _mlp,
    "lenet-300-100": _lenet_300_100,
    "lenet-5": _lenet_5,
    "vgg": _vgg,
    "resnet18": _resnet18,
    "vit-small": _vit_small,
    "lstm": _lstm,
    "transformer": _transformer,
}
"""Network by name -> what builds it without Bayes, from the inputs, the number of outputs and the hidden widths."""


def build_network(config: TrainConfig, preprocessing: Preprocessing) -> nn.Module:
    """The untrained network of a run, with the initial weights of its seed.

    Args:
        config: the run's settings.
        preprocessing: says what goes in and out.

    Raises:
        ValueError: for unknown names, or a network that does not fit the data.

    Example:
        >>> build_network(TrainConfig(data="moons"), load_problem("moons").preprocessing)
    """
    check_name("--model", config.model, MODELS)
    check_name("--method", config.method, [*methods.METHODS, "none"])
    with seeded(config.seed):
        plain = MODELS[config.model](preprocessing.inputs, preprocessing.target.outputs, config.hidden)
        if config.method == "none":
            return plain
        chosen = methods.METHODS[config.method]
        return bayesianize_(plain, posterior=chosen.posterior, prior=chosen.prior(), estimator=chosen.estimator)


def likelihood_for(preprocessing: Preprocessing) -> Likelihood:
    """Classes, or a number with noise that is learnt (in units of the target's standard deviation)."""
    if preprocessing.target.task == "classes":
        return likelihoods.Categorical()
    return likelihoods.Gaussian(noise=0.5, learn_noise=True)


def resolved_device(device: str, option: str = "--device") -> torch.device:
    """The device that a name stands for; auto is an accelerator if there is one. Messages name the `option`."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"{option} {device!r} cannot be used ({first}): pass cpu") from error
    return chosen


def _misfit(model: str, wants: str, inputs: Inputs) -> ValueError:
    if isinstance(inputs, TableInputs):
        have = f"a table of {inputs.shape[0]} inputs: use --model mlp"
    elif isinstance(inputs, ImageInputs):
        have = f"images of {' x '.join(map(str, inputs.shape))}: use --model mlp, or another that fits"
    else:
        have = "texts: use --model lstm or transformer"
    return ValueError(f"--model {model} takes {wants}, the data are {have}")
