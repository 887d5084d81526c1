"""Methods of a `Gaussian` that have the names of what used to be tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["MomentMethod", "RenamedMoment"]


class RenamedMoment(TypeError, AttributeError):
    """`x.mean` or `x.std` of a `Gaussian` taken for a tensor; an AttributeError too, so that `hasattr` works."""

    def __init__(self) -> None:
        super().__init__(
            "`x.mean` and `x.std` of a Gaussian are methods, as those of a tensor are: its mean tensor is `x.loc` now, "
            "its standard deviation `x.scale`"
        )


class MomentMethod:
    """`x.mean` or `x.std`: it can be called, and whatever else a tensor could do raises a `RenamedMoment`.

    Args:
        method: what it does where it is called.

    Example:
        >>> x = bl.Gaussian(torch.zeros(3, 2), torch.ones(3, 2))
        >>> x.mean(1).variance
        tensor([0.5000, 0.5000, 0.5000])
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What torch's method of that name does, by its moment rule."""
        return self._method(*args, **options)

    if not TYPE_CHECKING:  # type checkers shall see that there are no attributes

        def __getattr__(self, name: str) -> Any:
            raise RenamedMoment

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        """Refuse to be the argument of a torch function."""
        raise RenamedMoment


def _refused(*_: Any) -> Any:
    raise RenamedMoment


for _name in (
    *("add", "sub", "mul", "truediv", "matmul", "pow", "radd", "rsub", "rmul", "rtruediv", "rmatmul", "rpow"),
    *("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "bool", "float", "int", "len", "iter", "getitem", "array"),
):
    setattr(MomentMethod, f"__{_name}__", _refused)
