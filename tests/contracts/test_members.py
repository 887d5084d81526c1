"""The lists of members are complete, so that no contract passes by omission."""

from __future__ import annotations

import inspect

import torch

from bayeslim import estimators, layers, ops, posteriors, priors
from contracts.members import ESTIMATORS, INDEX_LAYERS, INDEX_OPS, LAYERS, OPS, POSTERIORS, PRIORS


def concrete(module: object, base: type) -> set[type]:
    members = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)]
    return {member for member in members if not inspect.isabstract(member) and member is not base}


def test_every_posterior_is_listed() -> None:
    listed = {type(build(torch.ones(4, 4))) for build in POSTERIORS.values()}
    assert listed == concrete(posteriors, posteriors.Posterior)


def test_every_prior_is_listed() -> None:
    assert {type(build()) for build in PRIORS.values()} == concrete(priors, priors.Prior)


def test_every_op_and_layer_is_listed() -> None:
    assert {type(case.op) for case in [*OPS.values(), *INDEX_OPS.values()]} == concrete(ops, ops.Op)
    assert {*LAYERS, *INDEX_LAYERS} == concrete(layers, layers.BayesLayer)


def test_every_estimator_is_listed() -> None:
    offered = [member for member in vars(estimators).values() if isinstance(member, estimators.Estimator)]
    assert set(ESTIMATORS.values()) == set(offered) and len(offered) >= 8
