"""Looking into networks: spectra of scales, gradient noise, BatchNorm statistics, robustness, attributions."""

from bayeslim.analysis.attribution import infidelity as infidelity
from bayeslim.analysis.attribution import saliency as saliency
from bayeslim.analysis.attribution import sensitivity_max as sensitivity_max
from bayeslim.analysis.batchnorm import refresh_batchnorm_ as refresh_batchnorm_
from bayeslim.analysis.gradient_snr import GradientSNR as GradientSNR
from bayeslim.analysis.low_rank import Spectrum as Spectrum
from bayeslim.analysis.low_rank import explained_variance as explained_variance
from bayeslim.analysis.low_rank import named_spectra as named_spectra
from bayeslim.analysis.low_rank import tie_scales_ as tie_scales_
from bayeslim.analysis.low_rank import truncate_scales_ as truncate_scales_
from bayeslim.analysis.plots import plot_scales as plot_scales
from bayeslim.analysis.plots import plot_spectra as plot_spectra
from bayeslim.analysis.robustness import SNRS as SNRS
from bayeslim.analysis.robustness import MagnitudePoint as MagnitudePoint
from bayeslim.analysis.robustness import NoisePoint as NoisePoint
from bayeslim.analysis.robustness import add_noise as add_noise
from bayeslim.analysis.robustness import magnitude_curve as magnitude_curve
from bayeslim.analysis.robustness import noise_sweep as noise_sweep
from bayeslim.analysis.robustness import spearman as spearman

__all__ = [
    "SNRS",
    "GradientSNR",
    "MagnitudePoint",
    "NoisePoint",
    "Spectrum",
    "add_noise",
    "explained_variance",
    "infidelity",
    "magnitude_curve",
    "named_spectra",
    "noise_sweep",
    "plot_scales",
    "plot_spectra",
    "refresh_batchnorm_",
    "saliency",
    "sensitivity_max",
    "spearman",
    "tie_scales_",
    "truncate_scales_",
]
