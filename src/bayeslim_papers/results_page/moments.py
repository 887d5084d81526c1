"""What one pass with propagated variances loses: figures without a record."""

__all__ = ["TEXT"]

TEXT = """What one pass with propagated variances loses, on the LeNet-5 of `bl.models.lenet5` trained on 20 000 MNIST
images for 3 epochs by `local_reparam` (prior N(0, 1), initial scale 0.01, seed 1): the ratio of the predicted standard
deviation of the logits to that of 500 sampled networks, for the whole posterior and with the noise of one layer alone.
Correlations between positions that share a kernel, and between units, are dropped: the earlier the noise enters, the
more of it is lost. These figures were noted by hand; there is no record of them in `results/`.

| noise in | all layers | conv 1 | conv 2 | conv 3 | linear 1 | linear 2 |
|---|---|---|---|---|---|---|
| ratio | 0.84 | 0.12 | 0.21 | 0.59 | 0.99 | 1.01 |

At initialisation the ratio is 0.97. One Transformer block gives 0.98 to 1.00, a residual block with BatchNorm 1.0, a
whole untrained ViT, whose tokens are averaged at the end, 0.5 to 0.7. `tests/moment_rules/test_networks.py` holds the
blocks to 5 %."""
