"""Sparse Bayesian neural networks: networks that say how sure they are, and that shrink themselves.

What `import bayeslim` offers; `__init__.py` loads each name when it is first used.
"""

from bayeslim import analysis as analysis
from bayeslim import baselines as baselines
from bayeslim import data as data
from bayeslim import estimators as estimators
from bayeslim import export as export
from bayeslim import full_covariance as full_covariance
from bayeslim import kernels as kernels
from bayeslim import layers as layers
from bayeslim import likelihoods as likelihoods
from bayeslim import metrics as metrics
from bayeslim import models as models
from bayeslim import moment_rules as moment_rules
from bayeslim import optim as optim
from bayeslim import posteriors as posteriors
from bayeslim import priors as priors
from bayeslim import pruning as pruning
from bayeslim import schedules as schedules
from bayeslim import selectors as selectors
from bayeslim.analysis import refresh_batchnorm_ as refresh_batchnorm_
from bayeslim.collapse import collapse_ as collapse_
from bayeslim.conversion_report import conversion_report as conversion_report
from bayeslim.convert import bayesianize_ as bayesianize_
from bayeslim.estimators import flipout as flipout
from bayeslim.estimators import local_reparam as local_reparam
from bayeslim.estimators import mean_only as mean_only
from bayeslim.estimators import moments as moments
from bayeslim.estimators import taylor_moments as taylor_moments
from bayeslim.estimators import weight_sample as weight_sample
from bayeslim.export import export_onnx as export_onnx
from bayeslim.feature_selection import select_features as select_features
from bayeslim.gaussian import Gaussian as Gaussian
from bayeslim.kl import kl as kl
from bayeslim.kl import named_kl as named_kl
from bayeslim.likelihoods import Bernoulli as Bernoulli
from bayeslim.likelihoods import Categorical as Categorical
from bayeslim.methods import METHODS as METHODS
from bayeslim.methods import mlp as mlp
from bayeslim.moped import moped as moped
from bayeslim.optim import param_groups as param_groups
from bayeslim.predictive import Prediction as Prediction
from bayeslim.predictive import Snapshots as Snapshots
from bayeslim.predictive import evaluate as evaluate
from bayeslim.predictive import predict as predict
from bayeslim.pruning import compact as compact
from bayeslim.pruning import footprint as footprint
from bayeslim.pruning import named_sparsity as named_sparsity
from bayeslim.pruning import prune_ as prune_
from bayeslim.pruning import prune_curve as prune_curve
from bayeslim.pruning import sparsity as sparsity
from bayeslim.pruning import unprune_ as unprune_
from bayeslim.saving import load as load
from bayeslim.saving import save as save
from bayeslim.training import History as History
from bayeslim.training import fit as fit
from bayeslim.training import nelbo as nelbo
from bayeslim.using import using as using

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Snapshots",
    "analysis",
    "bayesianize_",
    "collapse_",
    "compact",
    "data",
    "evaluate",
    "export_onnx",
    "fit",
    "flipout",
    "kl",
    "layers",
    "likelihoods",
    "load",
    "local_reparam",
    "mean_only",
    "metrics",
    "mlp",
    "models",
    "moments",
    "nelbo",
    "optim",
    "param_groups",
    "posteriors",
    "predict",
    "priors",
    "prune_",
    "prune_curve",
    "refresh_batchnorm_",
    "save",
    "schedules",
    "select_features",
    "selectors",
    "sparsity",
    "unprune_",
    "using",
    "weight_sample",
]
