"""What a posterior must be able to say about a weight tensor."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bayeslim.kernels import NOTHING, Facts, stands_for
from bayeslim.kernels.precision import full as full
from bayeslim.kernels.precision import is_narrow
from bayeslim.kernels.precision import product_type as product_type
from bayeslim.kernels.precision import typed_as as typed_as
from bayeslim.kernels.precision import wide as wide
from bayeslim.ops import Op

__all__ = [
    "NotATensor",
    "Posterior",
    "PosteriorFactory",
    "full",
    "product_type",
    "soft_upper_bound",
    "soft_upper_bound_inverse",
    "typed_as",
    "wide",
]


STATED = ("mean", "variance", "log_std", "rsample", "output_variance")
"""The methods that say what a posterior's facts say."""


class NotATensor(TypeError):
    """A tensor's method, operator or function asked of a posterior.

    Args:
        refusal: what was asked of which posterior.
        layer: the path of the layer that the posterior belongs to, where it is known.
    """

    def __init__(self, refusal: str, layer: str = "") -> None:
        found = layer and (
            f". It is the weight of layer {layer!r}, used outside the layer's own forward: leave such layers out, e.g. "
            f"bl.bayesianize_(net, where=lambda name, module: not name.endswith({layer.rpartition('.')[2]!r}))"
        )
        super().__init__(
            f"{refusal}: the weight of a Bayesian layer is a distribution, not a tensor; use its `.mean()`, or "
            f"`.rsample()` for a draw{found}"
        )


class Posterior(nn.Module, ABC):
    r"""A Gaussian `q(W)` over one weight tensor, laid out as `(out, in / groups, *kernel)`.

    A member states the mean and the variance of its marginals and can draw a sample; everything else
    in the library needs nothing more. A member whose entries are correlated also says so
    (`factorised = False`), gives its total correlation and overrides `output_variance`.

    Scales are float32 where the weight has 16 bits, in which steps of an optimiser round to nothing: `.half()`,
    `.bfloat16()` and `.to(dtype)` leave them so, and loading makes them so.

    `shape`, `dtype` and `device` are those of the mean. It is no tensor: in arithmetic, or passed to a torch function,
    it raises `NotATensor`, which says what to use instead.
    """

    factorised: ClassVar[bool] = True
    scale_parameters: ClassVar[tuple[str, ...]]
    """Names of the parameters that set the spread; they never see weight decay."""
    max_alpha: float = math.inf
    """Upper bound of `variance / mean^2` that this posterior guarantees."""
    used_at: str = ""
    """The path of the first layer that `bayesianize_` gave it to, for error messages."""

    @abstractmethod
    def mean(self) -> Tensor:
        """The mean of every weight."""

    @abstractmethod
    def variance(self) -> Tensor:
        """The marginal variance of every weight, in float32 at least."""

    def log_std(self) -> Tensor:
        """The log of the marginal standard deviations, in float32 at least."""
        variance = self.variance()
        return 0.5 * variance.clamp_min(torch.finfo(variance.dtype).tiny).log()

    @abstractmethod
    def rsample(self) -> Tensor:
        """Draw one weight tensor in the type of the mean, differentiable with respect to the parameters."""

    def facts(self) -> Facts:
        """What kernels may compute with instead of asking for mean, variance and draws; nothing unless overridden.

        A subclass of the class that states facts, if it overrides one of `STATED`, is no longer what they say: it
        states nothing, and kernels ask its methods.
        """
        return NOTHING

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not stands_for(cls, STATED):
            cls.facts = Posterior.facts

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The keyword arguments, besides `init`, that build a posterior of the same shape."""

    def kept(self) -> Tensor | None:
        """1 where a weight stays and 0 where it is pruned; None if none is."""
        return None

    def total_correlation(self) -> Tensor:
        r"""`TC(q) = sum_i H(q_i) - H(q)` in nats: what the marginals alone do not tell the KL."""
        return self.mean().new_zeros(())

    def output_variance(self, op: Op, x: Tensor) -> Tensor:
        """The variance of `op(x, W)` for a fixed input `x`, elementwise."""
        return op(op.squared(x), self.variance().to(product_type(x, self)))

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight, `(out, in / groups, *kernel)`."""
        return self.mean().shape

    @property
    def dtype(self) -> torch.dtype:
        """The type of the mean; scales and variance may be kept wider."""
        return self.mean().dtype

    @property
    def device(self) -> torch.device:
        """Where the mean lives."""
        return self.mean().device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Let torch move and convert the parameters, scales to no less than float32."""
        own = [scale for name in self.scale_parameters if (scale := self._parameters.get(name)) is not None]
        own += [scale.grad for scale in own if scale.grad is not None]

        def converted(tensor: Tensor) -> Tensor:
            new = fn(tensor)
            if not (is_narrow(new) and any(tensor is scale for scale in own)):
                return new
            return torch.empty_like(new, dtype=torch.float32).copy_(tensor)

        return super()._apply(converted, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load as torch does; scales of 16 bits that take the place of the own ones become float32."""
        super()._load_from_state_dict(*args, **kwargs)
        for name in self.scale_parameters:
            scale = self._parameters.get(name)
            if scale is not None and is_narrow(scale):
                scale.data = scale.data.float()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse: a posterior where a torch function takes a tensor."""
        given = (leaf.used_at for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Posterior))
        raise NotATensor(f"`{getattr(func, '__name__', func)}` takes no {cls.__name__}", next(given, ""))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotATensor(f"a {type(self).__name__} cannot be computed with", self.used_at)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __pow__ = __neg__ = _refuse
    # By name: a `__getattr__` would be asked for every parameter.
    t = transpose = permute = view = reshape = flatten = squeeze = unsqueeze = expand = chunk = split = size = _refuse
    __getitem__ = norm = _refuse
    T = property(_refuse)

    def __dir__(self) -> list[str]:
        """All names but `T`: torch.jit asks for each of them, and waits for an AttributeError alone."""
        return [name for name in super().__dir__() if name != "T"]


Value = TypeVar("Value", float, Tensor)
PosteriorFactory = Callable[[Tensor], Posterior]
"""Builds a posterior around an initial weight: a class, or `functools.partial(KTied, k=2)`."""


def soft_upper_bound(raw: Tensor, bound: float) -> Tensor:
    """Bend `raw` smoothly so that it stays below `bound`: `bound - softplus(bound - raw)`.

    Far below the bound this is `raw` itself; the gradient never vanishes entirely, so a parameter
    that reached the bound can come back. `bound = inf` returns `raw`.
    """
    return raw if bound == math.inf else bound - F.softplus(bound - raw)


def soft_upper_bound_inverse(value: Value, bound: float) -> Value:
    """The `raw` for which `soft_upper_bound(raw, bound) == value`, for `value < bound`."""
    if bound == math.inf:
        return value
    if isinstance(value, Tensor):
        return value - torch.expm1(value - bound).neg().log()
    return value - math.log(-math.expm1(value - bound))
