"""Train a Bayesian vision transformer of ViT-B's size, its parameters spread over all processes.

    torchrun --nproc-per-node 8 examples/vit_fsdp.py --out vit
    torchrun --nproc-per-node 2 examples/vit_fsdp.py --out vit --small

Every weight has a mean and a scale, and Adam keeps two more numbers for each: a process holds its part of all four, and
gathers one block of the network at a time. The images are made up (bright bars, of which the class is the place): put
your own data set in place of `images`. A run that was stopped goes on when it is started again, also with another
number of processes.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.models import ViT
from bayeslim.training.ranks import join
from bayeslim.training.sharding import full_state, local, shard_

CLASSES = 8


def images(count: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise (count, 3, size, size) with a bright bar, and the number of the eighth it lies in."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    pixels = 0.5 * torch.randn(count, 3, size, size, generator=generator)
    bars = torch.arange(size) * CLASSES // size == labels[:, None]
    return pixels + bars[:, None, :, None], labels


def network(small: bool) -> nn.Module:
    """ViT-B/16 for the eight classes, 86 million weights; or one of the same shape for a CPU."""
    if small:
        plain = ViT(image=32, patch=8, channels=3, dim=32, depth=2, heads=4, hidden=64, classes=CLASSES)
    else:
        sizes = {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072}
        plain = ViT(image=224, patch=16, channels=3, classes=CLASSES, qkv_bias=True, **sizes)
    return bl.bayesianize_(plain, prior=bl.priors.ARD(), estimator=bl.local_reparam)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("vit"), help="folder for checkpoint and network")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=256, help="images to make")
    parser.add_argument("--batch-size", type=int, default=32, help="over all processes together")
    parser.add_argument("--small", action="store_true", help="a small network on small images, to see that it runs")
    chosen = parser.parse_args(arguments)
    ranks, cuda = join(), torch.cuda.is_available()

    torch.manual_seed(0)
    model = network(chosen.small)
    total = sum(parameter.numel() for parameter in model.parameters())
    shard_(model, device="cuda" if cuda else "cpu")  # moved block by block: the device never holds all of it
    own = sum(local(parameter).numel() for parameter in model.parameters())
    print(f"rank {ranks.index} of {ranks.count} holds {own:,} of {total:,} parameters", flush=True)

    data = images(chosen.rows, 32 if chosen.small else 224, seed=0)
    history = bl.fit(
        model,
        data,
        likelihood=bl.Categorical(),
        epochs=chosen.epochs,
        batch_size=chosen.batch_size,
        lr=1e-3 if chosen.small else 1e-4,
        kl_schedule=bl.schedules.warmup_linear(1, 10),
        clip_norm=1.0,
        autocast=torch.bfloat16 if cuda else None,
        checkpoint=chosen.out,
        resume=True,
        seed=0,
    )
    scores = bl.evaluate(model, data, samples=0)  # by the mean of the weights; all processes take part in a pass
    state = full_state(model)  # whole, on rank 0
    if ranks.first:
        plain = network(chosen.small)
        plain.load_state_dict(state)
        bl.save(plain, chosen.out / "network.safetensors", bl.Categorical())
        for record in history.records:
            print(f"epoch {record['epoch']}: nll {record['nll']:.3f}, kl {record['kl']:,.0f} nats")
        print(f"accuracy on the training images {scores['accuracy']:.3f}; wrote {chosen.out / 'network.safetensors'}")


if __name__ == "__main__":
    main()
