"""Looking into posteriors: spectra of their scales, noise of their gradients, BatchNorm statistics."""

from bayeslim.analysis.batchnorm import refresh_batchnorm_ as refresh_batchnorm_
from bayeslim.analysis.gradient_snr import GradientSNR as GradientSNR
from bayeslim.analysis.low_rank import Spectrum as Spectrum
from bayeslim.analysis.low_rank import explained_variance as explained_variance
from bayeslim.analysis.low_rank import named_spectra as named_spectra
from bayeslim.analysis.low_rank import tie_scales_ as tie_scales_
from bayeslim.analysis.low_rank import truncate_scales_ as truncate_scales_
from bayeslim.analysis.plots import plot_scales as plot_scales
from bayeslim.analysis.plots import plot_spectra as plot_spectra

__all__ = [
    "GradientSNR",
    "Spectrum",
    "explained_variance",
    "named_spectra",
    "plot_scales",
    "plot_spectra",
    "refresh_batchnorm_",
    "tie_scales_",
    "truncate_scales_",
]
