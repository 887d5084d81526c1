"""Select the inputs that matter by networks that prune their inputs."""

from bayeslim.feature_selection.selection import FeatureSelection as FeatureSelection
from bayeslim.feature_selection.selection import select_features as select_features
from bayeslim.feature_selection.stack import Recipe as Recipe

__all__ = ["FeatureSelection", "Recipe", "select_features"]
