"""The settings of a spike-and-slab prior: their defaults, and what its thresholds mean now and meant before."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["LINEAR", "VERSION", "WITH_CONVOLUTIONS", "check_version", "filled_in"]

LINEAR = {"spike_decay": 1e-2, "soft_threshold": 1e-2, "hard_threshold": 1e-3}
"""Of the code of arXiv 2210.12957 for fully connected networks."""
WITH_CONVOLUTIONS = {"spike_decay": 1e-3, "soft_threshold": 1e-4, "hard_threshold": 1e-4}
"""Of its code for networks with convolutions, which has a range of 0.01: its square is the hard threshold here."""
VERSION = 2
"""Of the state of a pruner; older ones have none."""


def filled_in(
    spike_decay: float | None, soft_threshold: float | None, hard_threshold: float | None, *, convolutions: bool
) -> tuple[float, float, float]:
    """The settings that are given, and the default ones for the rest.

    Args:
        spike_decay: weight decay in the spike; None: the default.
        soft_threshold: the mean square below which a group is in the spike; None: the default.
        hard_threshold: the mean square below which it is set to zero; None: the default.
        convolutions: whether convolutions are pruned.

    Raises:
        ValueError: if one is negative or not finite, or if convolutions would be pruned that are not in the spike.

    Example:
        >>> filled_in(None, 2e-2, None, convolutions=False)
        (0.01, 0.02, 0.001)
    """
    defaults = WITH_CONVOLUTIONS if convolutions else LINEAR
    given = (spike_decay, soft_threshold, hard_threshold)
    found = {name: defaults[name] if value is None else value for name, value in zip(LINEAR, given, strict=True)}
    for name, value in found.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"`{name}` must be finite and not negative, got {value}: pass e.g. {defaults[name]}")
    decay, soft, hard = found.values()
    # Such a pair is the mark of a threshold that is meant as a range, which it was for convolutions before.
    if convolutions and 0 < soft < hard:
        raise ValueError(
            f"`hard_threshold`={hard} must not exceed `soft_threshold`={soft}: only weights in the spike may be set to "
            "zero. Both are mean squares, and a convolution is judged by the square of its range: pass 1e-4 for a "
            "range of 0.01"
        )
    return decay, soft, hard


def check_version(state: dict[str, Any], names: set[str], *, same: bool) -> None:
    """Raise ValueError if a run that an older version has begun would go on otherwise.

    Args:
        state: of a pruner of a network with convolutions.
        names: of the tensors that the pruner has.
        same: whether its settings meant the same in older versions.
    """
    if "version" not in state and not (same and state["tensors"].keys() == names):
        raise ValueError(
            "`state` is of an older version, in which `hard_threshold` was a range for convolutions and not a mean "
            "square, the defaults were those of linear layers, and group='kernel' pruned these too: finish the run "
            "with that version, or begin anew"
        )
