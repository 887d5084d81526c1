"""Predictions with their uncertainty, and how good they are."""

from bayeslim.predictive.evaluate import evaluate as evaluate
from bayeslim.predictive.prediction import Prediction as Prediction
from bayeslim.predictive.sample import predict as predict
from bayeslim.predictive.snapshots import Snapshots as Snapshots

__all__ = ["Prediction", "Snapshots", "evaluate", "predict"]
