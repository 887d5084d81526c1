"""One call makes the feed-forward block of a Transformer Bayesian, or its attention, or both."""

import pytest
import torch

import bayeslim as bl
from bayeslim.layers import BayesLayer


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (bl.selectors.feed_forward, {"linear1", "linear2"}),
        (bl.selectors.attention, {"q_proj", "k_proj", "v_proj", "out_proj"}),
        (bl.selectors.transformer_block, {"linear1", "linear2", "q_proj", "k_proj", "v_proj", "out_proj"}),
    ],
)
def test_only_the_chosen_layers_are_converted(where: object, names: set[str]) -> None:
    torch.manual_seed(0)
    model = bl.models.TransformerClassifier(20, dim=8, heads=2, hidden=12)
    bl.bayesianize_(model, where=where, estimator=bl.weight_sample)  # pyright: ignore[reportArgumentType]
    found = {name.split(".")[-1] for name, module in model.named_modules() if isinstance(module, BayesLayer)}
    assert found == names
    tokens = torch.randint(0, 20, (4, 6))
    prediction = bl.predict(model.eval(), tokens, likelihood=bl.Categorical(), samples=8, seed=0)
    assert prediction.epistemic.min() > 0
