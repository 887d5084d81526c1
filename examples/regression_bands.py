"""Regression with bands that mean what they say, inside the data and outside.

    python examples/regression_bands.py --out bands.png

Fits the curve of Blundell et al. (2015) from 500 points on [0, 0.5] by a network that also predicts the noise, since it
is not the same everywhere. Prints how many new points 95 % intervals hold, inside the data and to the right of them on
(0.5, 1.4], and draws two bands: what the weights do not know, and the noise of the data on top, which
outside the data is an extrapolation too. Needs matplotlib.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import bayeslim as bl
from bayeslim.metrics import interval_coverage, interval_width


def scaled(x: Tensor) -> Tensor:
    """Inputs from [0, 0.5] to about [-1.7, 1.7], where a network is at its best."""
    return (x - 0.25) / 0.144


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--quick", action="store_true", help="a few epochs, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("bands.png"), help=".png, .svg or .pdf")
    chosen = parser.parse_args(arguments)
    epochs = 20 if chosen.quick else chosen.epochs
    train = bl.data.blundell_curve(500, seed=0)
    new = bl.data.dissertation_curve(2000, train=1, seed=1)  # the same curve, on [0, 1.4]

    torch.manual_seed(0)
    model = bl.mlp([1, 50, 50, 2], method="graves", prior=bl.priors.Normal(0.0, 0.5), estimator=bl.local_reparam)
    bl.fit(
        model,
        (scaled(train.x), train.y),
        likelihood=bl.likelihoods.HeteroscedasticGaussian(),  # one output for the mean, one for the noise
        epochs=epochs,
        batch_size=50,
        lr=1e-2,
        kl_schedule=bl.schedules.warmup_linear(epochs // 10, epochs // 3),
        lr_schedule=bl.schedules.constant_then_linear(0.5),
        seed=0,
    )
    inside = new.x_test[:, 0] <= 0.5
    for name, part in (("inside the data", inside), ("outside", ~inside)):
        x, y = new.x_test[part], new.y_test[part]
        prediction = bl.predict(model, scaled(x), seed=0)
        lower, upper = prediction.interval(0.95)
        print(
            f"{name}: {interval_coverage(lower, upper, y):.1%} of new points in their 95 % interval, "
            f"mean width {interval_width(lower, upper):.2f}; std of the weights' doubt "
            f"{prediction.epistemic.mean().sqrt():.3f}, of the noise {prediction.aleatoric.mean().sqrt():.3f}"
        )

    x = torch.linspace(-0.2, 1.0, 241)[:, None]
    # Every sample one network for all x: curves instead of independent draws per point.
    prediction = bl.predict(model, scaled(x), samples=500, estimator=bl.weight_sample, seed=0)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for std, label, shade in (
        (prediction.std, "with the noise of the data", 0.2),
        (prediction.epistemic.sqrt(), "what the weights do not know", 0.35),
    ):
        low, high = ((prediction.mean + side * 1.96 * std)[:, 0] for side in (-1, 1))
        axes.fill_between(x[:, 0], low, high, color="tab:blue", alpha=shade, linewidth=0, label=label)
    axes.plot(x, prediction.mean, color="tab:blue", label="mean")
    shown = new.x_test[:, 0] < 1
    axes.plot(new.x_test[shown][::6], new.y_test[shown][::6], ".", color="tab:orange", markersize=2, label="new points")
    axes.plot(train.x, train.y, ".", color="black", markersize=2, label="training points")
    axes.set(xlabel="x", ylabel="y", ylim=(-1.5, 2.5))
    axes.legend(loc="upper left", fontsize=8)
    figure.savefig(chosen.out, dpi=130)
    print(f"wrote {chosen.out}")


if __name__ == "__main__":
    main()
