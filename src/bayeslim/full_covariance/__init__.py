"""Mean and full covariance through small networks: the reference for everything that keeps variances only."""

from bayeslim.full_covariance.joint import JointGaussian as JointGaussian
from bayeslim.full_covariance.propagate import full_covariance as full_covariance

__all__ = ["JointGaussian", "full_covariance"]
