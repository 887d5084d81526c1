"""A value known by its mean and variance."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from bayeslim.kernels.context import may_be_followed
from bayeslim.kernels.reference import VARIANCE_FLOOR as VARIANCE_FLOOR
from bayeslim.moment_methods import MomentMethod

__all__ = ["MOMENT_RULES", "VARIANCE_FLOOR", "Gaussian", "Mode", "NoMomentRule", "Residual"]

MOMENT_RULES: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What each torch function does to a `Gaussian`; filled by `bayeslim.moment_rules`."""

Mode = Literal["exact", "taylor"]
"""How a value passes nonlinear functions: by exact moments, or by the paper's first-order expansion."""

Residual = tuple["Gaussian", Callable[[], Tensor]]
"""The value `x` that another is a linear map `W x` of, and the mean of the diagonal of `W`, on demand."""


class NoMomentRule(TypeError, AttributeError):
    """A function or method that a `Gaussian` cannot pass; an AttributeError too, so that `hasattr` works."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no moment rule for `{name}`: register one with "
            "`bayeslim.gaussian.MOMENT_RULES[torch_function] = rule`, or predict by sampling"
        )


class Gaussian:
    """A tensor of independent Gaussians: means `loc` and a `variance` of the same shape.

    Deliberately not a Tensor: a torch function without a rule in `MOMENT_RULES` raises a TypeError
    that names it, instead of silently losing the variance. It has the arithmetic and the methods of a tensor as far
    as there are rules for them: `x.mean(1)` is the average over an axis, another Gaussian.

    Args:
        mean: the means `loc`, floating point.
        variance: the variances, same shape, not negative.
        mode: "exact", or "taylor" for the paper's first-order rules; results inherit it.

    Raises:
        TypeError: if one of the two is not a floating-point tensor.
        ValueError: if the shapes differ, a variance is negative or not finite, or the mode is unknown.

    Example:
        >>> x = Gaussian(torch.zeros(3), torch.ones(3))
        >>> torch.relu(2 * x + 1).scale
        tensor([1.4879, 1.4879, 1.4879])
    """

    def __init__(self, mean: Tensor, variance: Tensor, mode: Mode = "exact") -> None:
        for name, value in (("mean", mean), ("variance", variance)):
            if not isinstance(value, Tensor) or not value.is_floating_point():
                kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
                raise TypeError(f"`{name}` must be a floating-point tensor, got {kind}")
        if mean.shape != variance.shape:
            raise ValueError(
                f"`mean` and `variance` must have the same shape, got {tuple(mean.shape)} and {tuple(variance.shape)}"
            )
        if mode not in get_args(Mode):
            raise ValueError(f"`mode` must be 'exact' or 'taylor', got {mode!r}")
        if not may_be_followed():
            _check_variance(variance)
        self.loc, self.variance = mean, variance
        self.mode: Mode = mode
        self.residual: Residual | None = None

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, mode: Mode = "exact", residual: Residual | None = None) -> Gaussian:
        """As the constructor, without looking at the values: for rules, whose results are valid by construction."""
        result = cls.__new__(cls)
        result.loc, result.variance, result.mode, result.residual = mean, variance, mode, residual
        return result

    @property
    def scale(self) -> Tensor:
        """The standard deviation of every element."""
        return self.variance.sqrt()

    @property
    def mean(self) -> MomentMethod:
        """The method of a tensor: `x.mean(1)` is the average over an axis. The mean tensor is `loc`."""
        return MomentMethod(self.__getattr__("mean"))

    @property
    def std(self) -> MomentMethod:
        """The method of a tensor: `x.std(1)` is the deviation along an axis. That of every element is `scale`."""
        return MomentMethod(self.__getattr__("std"))

    @property
    def shape(self) -> torch.Size:
        """The shape of the mean."""
        return self.loc.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.loc.ndim

    @property
    def dtype(self) -> torch.dtype:
        """The type of the mean; the variance may be kept wider."""
        return self.loc.dtype

    @property
    def device(self) -> torch.device:
        """Where the mean lives."""
        return self.loc.device

    @property
    def T(self) -> Gaussian:
        """The transpose of a matrix."""
        return self.map(lambda part: part.T)

    @property
    def mT(self) -> Gaussian:
        """With its last two axes exchanged."""
        return self.map(lambda part: part.mT)

    is_nested = False
    requires_grad = False  # torch's modules ask this before fused paths, which a Gaussian never takes

    def dim(self) -> int:
        """The number of axes, as torch's modules ask for it."""
        return self.loc.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one entry of it."""
        return self.loc.shape if dim is None else self.loc.shape[dim]

    def numel(self) -> int:
        """The number of elements."""
        return self.loc.numel()

    def new_zeros(self, *size: Any, **options: Any) -> Tensor:
        """A plain tensor of zeros, as torch's and our modules ask for initial states."""
        return self.loc.new_zeros(*size, **options)

    def rsample(self) -> Tensor:
        """Draw one value per element, differentiable."""
        std = self.variance.clamp_min(VARIANCE_FLOOR).sqrt()  # whose slope is 0 where there is no variance
        return torch.addcmul(self.loc, std, torch.randn_like(self.loc))

    def map(self, function: Callable[[Tensor], Tensor]) -> Gaussian:
        """Apply a function that only moves elements (a reshape, an index) to mean and variance alike."""
        return Gaussian.of(function(self.loc), function(self.variance), self.mode)

    def __getitem__(self, index: Any) -> Gaussian:
        return self.map(lambda part: part[index])

    def __len__(self) -> int:
        return len(self.loc)

    def __add__(self, other: Any) -> Gaussian:
        return _rule(torch.add)(self, other)

    def __radd__(self, other: Any) -> Gaussian:
        return _rule(torch.add)(other, self)

    def __sub__(self, other: Any) -> Gaussian:
        return _rule(torch.sub)(self, other)

    def __rsub__(self, other: Any) -> Gaussian:
        return _rule(torch.sub)(other, self)

    def __mul__(self, other: Any) -> Gaussian:
        return _rule(torch.mul)(self, other)

    def __rmul__(self, other: Any) -> Gaussian:
        return _rule(torch.mul)(other, self)

    def __truediv__(self, other: Any) -> Gaussian:
        return _rule(torch.div)(self, other)

    def __rtruediv__(self, other: Any) -> Gaussian:
        return _rule(torch.div)(other, self)

    def __matmul__(self, other: Any) -> Gaussian:
        return _rule(torch.matmul)(self, other)

    def __rmatmul__(self, other: Any) -> Gaussian:
        return _rule(torch.matmul)(other, self)

    def __pow__(self, exponent: Any) -> Gaussian:
        return _rule(torch.pow)(self, exponent)

    def __neg__(self) -> Gaussian:
        return _rule(torch.neg)(self)

    def __getattr__(self, name: str) -> Any:
        """A tensor's method, where its function has a rule: `x.relu()` is `torch.relu(x)`."""
        if not name.startswith("_"):
            rule = _found(getattr(torch.Tensor, name, None))
            if rule is not None:
                return functools.partial(_passed, rule, self)
        raise NoMomentRule(name)

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: not `residual`, which refers to the layer that made this value."""
        return self.__dict__ | {"residual": None}

    def __repr__(self) -> str:
        return f"Gaussian(shape={tuple(self.shape)}" + (f", mode={self.mode!r})" if self.mode != "exact" else ")")

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Look `func` up in `MOMENT_RULES`."""
        return _passed(_rule(func), *args, **(kwargs or {}))


def _found(func: Any) -> Callable[..., Any] | None:
    if func not in MOMENT_RULES:
        from bayeslim import moment_rules as moment_rules  # fills the table, if nothing has yet
    return MOMENT_RULES.get(func)


def _rule(func: Callable[..., Any]) -> Callable[..., Any]:
    rule = _found(func)
    if rule is None:
        raise NoMomentRule(getattr(func, "__name__", repr(func)))
    return rule


def _passed(rule: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Apply a rule, also where options have the names that torch took over from NumPy."""
    for name, alias in (("dim", "axis"), ("keepdim", "keepdims")):
        if alias in options:
            options[name] = options.pop(alias)
    return rule(*args, **options)


def _check_variance(variance: Tensor) -> None:
    smallest, largest = (x.item() for x in variance.detach().aminmax()) if variance.numel() else (0.0, 0.0)
    if not (smallest >= 0 and largest < math.inf):
        wrong = "NaN" if math.isnan(smallest) else f"values from {smallest:g} to {largest:g}"
        raise ValueError(f"`variance` must be finite and not negative, got {wrong}: pass e.g. std.square()")
