"""Find the five inputs out of a hundred that a target depends on.

    python examples/variable_selection.py --out selected.txt

The first example of the EM-MCMC paper, cut to a hundred correlated inputs and 4000 rows: three small networks are
trained as one stack by CV-Adam, with a spike-and-slab prior that prunes inputs, and the one that predicts held-out
rows best is kept. A network that is trapped shows by its loss.
"""

import argparse
from pathlib import Path

import torch

import bayeslim as bl
from bayeslim.feature_selection import Recipe, select_features


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("selected.txt"))
    chosen = parser.parse_args(arguments)
    train, test = (bl.data.sparse_regression(1, rows, seed) for rows, seed in ((4000, 0), (1000, 1)))
    recipe = Recipe(epochs=chosen.epochs, batch_size=400, lr=0.05, hard_threshold=3e-3, soft_threshold=2e-2)
    found = select_features(
        train.x[:, :100], train.y, restarts=chosen.restarts, recipe=recipe, truth=train.support.tolist()
    )
    for number, (loss, inputs) in enumerate(zip(found.validation_losses, found.chosen_by_restart, strict=True)):
        print(f"restart {number}: held-out loss {loss:.3f}, {len(inputs)} inputs{' *' * (number == found.restart)}")
    x = test.x[:, :100]
    with torch.no_grad():
        error = (found.network(x) - test.y).square().mean().item()
    names = ", ".join(f"x{column + 1}" for column in found.chosen.tolist())
    print(f"chosen: {names} (the target depends on x1 to x5)")
    print(f"false discoveries {found.false_discovery_rate:.0%}, missed {found.false_nondiscovery_rate:.0%}")
    print(f"test error {error:.2f}, of which 1 is noise; {found.sparsity:.1%} of the parameters are zero")
    small = bl.compact(found.network, x[:2])
    print("layers after compaction:", [tuple(p.shape) for p in small.parameters() if p.ndim == 2])
    chosen.out.write_text(names + "\n")


if __name__ == "__main__":
    main()
