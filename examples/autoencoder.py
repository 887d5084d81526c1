"""Reconstruct digits with per-pixel uncertainty: a Bayesian auto-encoder.

    python examples/autoencoder.py --out reconstruction.png

Trains a dense auto-encoder (or a convolutional one with --conv) with a Bernoulli likelihood per pixel, and draws for
some test digits the input, the mean reconstruction, its aleatoric part (ink or no ink?) and its epistemic part (what
the weights do not know). The last column is a shape that is no digit. Uses MNIST where it is
found (BAYESLIM_DATA), scikit-learn's digits otherwise.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import bayeslim as bl


def load(name: str, root: Path | None) -> tuple[Tensor, Tensor]:
    """Training and test images (N, 1, side, side) in [0, 1]."""
    if name == "mnist":
        return bl.data.mnist("train", root=root).x, bl.data.mnist("test", root=root).x
    from sklearn.datasets import load_digits

    pixels, _ = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8) / 16
    return images[:1500], images[1500:]


def stranger(side: int) -> Tensor:
    """A cross in a box: not a digit."""
    image = torch.zeros(1, 1, side, side)
    image[..., 1, 1:-1] = image[..., -2, 1:-1] = image[..., 1:-1, 1] = image[..., 1:-1, -2] = 1
    index = torch.arange(1, side - 1)
    image[0, 0, index, index] = image[0, 0, index, side - 1 - index] = 1
    return image


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["digits", "mnist"], default="digits")
    parser.add_argument("--root", type=Path, default=None, help="folder that holds mnist/")
    parser.add_argument("--conv", action="store_true", help="convolutional (MNIST only)")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("reconstruction.png"))
    chosen = parser.parse_args(arguments)
    train, test = load(chosen.data, chosen.root)
    side = train.shape[-1]
    torch.manual_seed(0)
    if chosen.conv:
        model, shape = bl.models.conv_autoencoder(), (1, side, side)
    else:
        model, shape = bl.models.dense_autoencoder((side * side, 128, 16)), (side * side,)
    bl.bayesianize_(model, prior=bl.priors.Normal(0.0, 0.3))
    x = train.reshape(-1, *shape)
    bl.fit(
        model,
        (x, x),
        likelihood=bl.Bernoulli(),
        epochs=chosen.epochs,
        lr=3e-3,
        kl_schedule=bl.schedules.warmup_linear(5, 20),
        lr_schedule=bl.schedules.constant_then_linear(0.5),
        seed=0,
    )
    shown = torch.cat([test[:6], stranger(side)])
    prediction = bl.predict(model, shown.reshape(-1, *shape), samples=200, seed=0)
    scores = bl.evaluate(model, (test.reshape(-1, *shape),) * 2, samples=20)
    print(f"test nll per image {scores['nll']:.2f} nats, pixels on the right side of 1/2: {scores['accuracy']:.1%}")
    unsure = prediction.epistemic.flatten(1).mean(1).sqrt()
    print(f"mean epistemic std of a pixel: digits {unsure[:-1].mean():.3f}, the stranger {unsure[-1]:.3f}")
    rows = {
        "input": shown,
        "mean": prediction.mean,
        "aleatoric std": prediction.aleatoric.sqrt(),
        "epistemic std": prediction.epistemic.sqrt(),
    }
    figure = Figure(figsize=(1.2 * len(shown), 5.2), layout="constrained")
    axes = figure.subplots(len(rows), len(shown))
    for line, (label, images) in zip(axes, rows.items(), strict=True):
        top = 1.0 if label in ("input", "mean") else float(images.max())
        for panel, image in zip(line, images, strict=True):
            panel.imshow(image.detach().reshape(side, side), cmap="gray_r", vmin=0, vmax=top)
            panel.set(xticks=[], yticks=[])
        line[0].set_ylabel(label)
    axes[0][-1].set_title("not a digit", fontsize=9)
    figure.savefig(chosen.out, dpi=110)
    print(f"wrote {chosen.out}")


if __name__ == "__main__":
    main()
