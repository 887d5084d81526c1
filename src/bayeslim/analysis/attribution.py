"""Which inputs a prediction hangs on, and how far that explanation can be trusted; by captum (the `explain` extra)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts, check_zero_or_more
from bayeslim.checks.networks import check_network
from bayeslim.checks.numbers import check_number
from bayeslim.checks.packages import check_installed
from bayeslim.estimators import mean_only, moments
from bayeslim.gaussian import Gaussian
from bayeslim.predictive.inputs import as_tensor, device_of, float_type_of, one_tensor, refusal
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.seeds import seeded
from bayeslim.using import using

__all__ = ["infidelity", "saliency", "sensitivity_max"]

ROWS_AT_ONCE = 4096
"""Examples times draws in one pass."""

Explained = Literal["mean", "moments"]


def saliency(
    model: nn.Module,
    x: Tensor,
    *,
    method: Explained = "mean",
    target: Tensor | None = None,
    smooth: int = 0,
    noise: float = 0.1,
    seed: int = 0,
) -> Tensor:
    r"""The gradient of a class's mean output with respect to the input, signed: `Phi(x) = d f_c(x) / d x`.

    With `smooth` the average of `Phi(x + e)` over that many `e ~ N(0, noise^2)` (SmoothGrad, Smilkov et al. 2017).
    captum's own `Saliency` takes absolute values by default; here take `.abs()` for a picture of magnitudes.

    Args:
        model: classifier with outputs (N, classes).
        x: inputs (N, ...), floating point.
        method: "mean", the network of the posterior means, or "moments", the mean that moment propagation gives, which
            the uncertainty of the weights shifts.
        target: classes (N,) to explain; None takes the predicted ones.
        smooth: noisy copies to average over; 0 takes the gradient at `x` itself.
        noise: standard deviation of that noise.
        seed: of that noise.

    Returns:
        The gradients, in the shape of `x`.

    Raises:
        ModuleNotFoundError: if captum is not installed.
        TypeError: if `x` is not floating point, or `model` no network that returns one tensor.
        ValueError: if `x` is empty, not finite or does not fit the network, if `target` does not hold one of its
            classes per input, or another argument makes no sense.

    Example:
        >>> phi = saliency(model, images, smooth=20)
        >>> phi.abs().amax(1)
    """
    with _explaining(model, x, method, target, seed) as (forward, x, classes):
        return _gradient(forward, x, classes, smooth, noise)


def infidelity(
    model: nn.Module,
    x: Tensor,
    *,
    method: Explained = "mean",
    target: Tensor | None = None,
    smooth: int = 0,
    radius: float = 0.02,
    draws: int = 10,
    seed: int = 0,
) -> Tensor:
    r"""How badly the saliency predicts changes of the output (Yeh et al. 2019): 0 for a linear network.

    `E_I[(I . Phi(x) - (f_c(x) - f_c(x - I)))^2]` over perturbations `I ~ N(0, radius^2)` of every input element, with
    the signed `Phi` of `saliency`: absolute values would not even explain a linear network.

    Args:
        model: classifier with outputs (N, classes).
        x: inputs (N, ...), floating point.
        method: as of `saliency`.
        target: as of `saliency`.
        smooth: noisy copies of the explanation, at standard deviation `radius`; 0 for the plain gradient.
        radius: standard deviation of the perturbations.
        draws: perturbations per example.
        seed: of all noise.

    Returns:
        One value per example, (N,).

    Raises:
        ModuleNotFoundError, TypeError, ValueError: as `saliency`.

    Example:
        >>> infidelity(model, images, method="moments").mean()
    """
    check_number("radius", radius, "(0, inf)", "pass e.g. 0.02")
    (draws,) = check_counts(draws=draws)
    with _explaining(model, x, method, target, seed) as (forward, x, classes):
        from captum.metrics import infidelity as captum_infidelity

        def perturbed(inputs: Tensor) -> tuple[Tensor, Tensor]:
            change = radius * torch.randn_like(inputs)
            return change, inputs - change

        phi = _gradient(forward, x, classes, smooth, radius)
        options = _draw_options(x, draws)
        return captum_infidelity(forward, perturbed, x, phi, target=classes, **options).detach()


def sensitivity_max(
    model: nn.Module,
    x: Tensor,
    *,
    method: Explained = "mean",
    target: Tensor | None = None,
    smooth: int = 0,
    radius: float = 0.02,
    draws: int = 10,
    seed: int = 0,
) -> Tensor:
    r"""How much the saliency changes in a neighbourhood (Yeh et al. 2019): 0 for a linear network.

    `max_d ||Phi(x + d) - Phi(x)|| / ||Phi(x)||` over draws `d`, uniform in `[-radius, radius]` for every input element.
    The class stays that of `x`.

    Args:
        model: classifier with outputs (N, classes).
        x: inputs (N, ...), floating point.
        method: as of `saliency`.
        target: as of `saliency`.
        smooth: noisy copies of the explanation, at standard deviation `radius`; 0 for the plain gradient.
        radius: the largest change of an input element.
        draws: neighbours per example.
        seed: of all noise.

    Returns:
        One value per example, (N,). Where the gradient at `x` vanishes, captum does not divide by its norm.

    Raises:
        ModuleNotFoundError, TypeError, ValueError: as `saliency`.

    Example:
        >>> sensitivity_max(model, images).mean()
    """
    check_number("radius", radius, "(0, inf)", "pass e.g. 0.02")
    (draws,) = check_counts(draws=draws)
    with _explaining(model, x, method, target, seed) as (forward, x, classes):
        from captum.metrics import sensitivity_max as captum_sensitivity

        def explain(inputs: tuple[Tensor, ...], target: Tensor) -> tuple[Tensor, ...]:
            return (_gradient(forward, inputs[0], target, smooth, radius),)

        def neighbours(inputs: Tensor) -> tuple[Tensor, ...]:
            return (inputs + radius * (2 * torch.rand_like(inputs) - 1),)

        options = _draw_options(x, draws)
        return captum_sensitivity(explain, (x,), neighbours, target=classes, **options).detach()


Forward = Callable[[Tensor], Tensor]


@contextmanager
def _explaining(
    model: nn.Module, x: Tensor, method: Explained, target: Tensor | None, seed: int
) -> Iterator[tuple[Forward, Tensor, Tensor]]:
    """The mean outputs as a function of tensors, the checked inputs and classes to explain; noise is from `seed`."""
    check_network(model, "explain")
    check_installed("captum", "attributions need captum", "explain")
    if method not in ("mean", "moments"):
        raise ValueError(f"`method` must be 'mean' or 'moments', got {method!r}")
    x = as_tensor("x", x, float_type_of(model)).to(device_of(model))
    if not x.is_floating_point():
        raise TypeError(f"`x` must be floating point to have a gradient, got {x.dtype}: convert it, e.g. x.float()")

    def forward(inputs: Tensor) -> Tensor:
        output: Any = model(inputs)
        return one_tensor(output.loc if isinstance(output, Gaussian) else output)

    with evaluation_mode(model), using(model, mean_only if method == "mean" else moments), seeded(seed):
        yield forward, x, _classes(target, _outputs(forward, x))


@torch.no_grad()
def _outputs(forward: Forward, x: Tensor) -> Tensor:
    """The outputs (N, classes) for `x`, or a ValueError that says what does not fit."""
    try:
        outputs = forward(x)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise refusal(x, error) from error
    if outputs.ndim != 2:
        raise ValueError(f"attributions need outputs (N, classes), got shape {tuple(outputs.shape)}")
    return outputs


def _classes(target: Tensor | None, outputs: Tensor) -> Tensor:
    """The classes to explain, one per row of the outputs: those asked for, else the predicted ones."""
    if target is None:
        return outputs.argmax(1)
    rows, count = outputs.shape
    classes = as_tensor("target", target)
    if classes.is_floating_point() or classes.dtype == torch.bool or classes.shape != (rows,):
        raise ValueError(
            f"`target` must hold {rows} integer classes, one per input, got {classes.dtype} of shape "
            f"{tuple(classes.shape)}"
        )
    wrong = classes[(classes < 0) | (classes >= count)]
    if len(wrong):
        raise ValueError(
            f"`target` holds the class {int(wrong[0])}, but the model has {count} outputs: classes must lie in "
            f"[0, {count - 1}]"
        )
    return classes.to(outputs.device, torch.int64)


def _gradient(forward: Forward, x: Tensor, classes: Tensor, smooth: int, noise: float) -> Tensor:
    """Signed saliency, averaged over noise where asked for."""
    from captum.attr import NoiseTunnel, Saliency

    smooth = check_zero_or_more("smooth", smooth, "0 takes the plain gradient")
    check_number("noise", noise, "[0, inf)", "pass e.g. 0.1")
    inputs = x.detach().clone().requires_grad_()  # captum warns about inputs that need no gradient
    method = Saliency(forward)
    if not smooth:
        return method.attribute(inputs, target=classes, abs=False).detach()
    options: dict[str, Any] = {"nt_type": "smoothgrad", "nt_samples": smooth, "stdevs": noise, "abs": False}
    options["nt_samples_batch_size"] = _draws_at_once(x, smooth)
    average: Any = NoiseTunnel(method).attribute(inputs, target=classes, **options)
    return average.detach()


def _draw_options(x: Tensor, draws: int) -> dict[str, Any]:
    """What captum's metrics call the number of draws and the examples in one pass."""
    return {"n_perturb_samples": draws, "max_examples_per_batch": len(x) * _draws_at_once(x, draws)}


def _draws_at_once(x: Tensor, draws: int) -> int:
    return max(1, min(draws, ROWS_AT_ONCE // len(x)))
