"""How good a prediction is: scores, calibration and out-of-distribution detection.

Plain functions of tensors. Every scalar comes back as a Python float, accumulated in float64 on
the device of the first argument (on the CPU for MPS, which has no float64), without gradients:
these are for reporting, not for training.
"""

from bayeslim.metrics.calibration import (
    ReliabilityCurve,
    expected_calibration_error,
    interval_coverage,
    interval_width,
    reliability_curve,
)
from bayeslim.metrics.ood import auroc, fpr_at_tpr
from bayeslim.metrics.scores import (
    accuracy,
    brier,
    crps_gaussian,
    crps_samples,
    gaussian_nll,
    negative_log_likelihood,
    rmse,
)

__all__ = [
    "ReliabilityCurve",
    "accuracy",
    "auroc",
    "brier",
    "crps_gaussian",
    "crps_samples",
    "expected_calibration_error",
    "fpr_at_tpr",
    "gaussian_nll",
    "interval_coverage",
    "interval_width",
    "negative_log_likelihood",
    "reliability_curve",
    "rmse",
]
