"""What torch functions do to the mean and variance of a `Gaussian`; importing this fills the table."""

from bayeslim.gaussian import MOMENT_RULES as MOMENT_RULES
from bayeslim.moment_rules import table as table

__all__ = ["MOMENT_RULES"]
