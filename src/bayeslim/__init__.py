"""Sparse Bayesian neural networks: networks that say how sure they are, and that shrink themselves."""

from bayeslim import layers as layers
from bayeslim import likelihoods as likelihoods
from bayeslim import models as models
from bayeslim import moment_rules as moment_rules
from bayeslim import optim as optim
from bayeslim import posteriors as posteriors
from bayeslim import priors as priors
from bayeslim import schedules as schedules
from bayeslim.convert import bayesianize_ as bayesianize_
from bayeslim.estimators import flipout as flipout
from bayeslim.estimators import local_reparam as local_reparam
from bayeslim.estimators import mean_only as mean_only
from bayeslim.estimators import moments as moments
from bayeslim.estimators import weight_sample as weight_sample
from bayeslim.gaussian import Gaussian as Gaussian
from bayeslim.kl import kl as kl
from bayeslim.kl import named_kl as named_kl
from bayeslim.methods import METHODS as METHODS
from bayeslim.methods import mlp as mlp
from bayeslim.optim import param_groups as param_groups
from bayeslim.saving import load as load
from bayeslim.saving import save as save
from bayeslim.training.elbo import nelbo as nelbo
from bayeslim.using import using as using
