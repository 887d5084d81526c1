"""Runs of sharded networks for several processes; `torchrun sharded_runs.py FOLDER` keeps what each rank saw of each.

The same functions give the single-process results when they are called outside torchrun, where nothing is sharded.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.divergence import is_sharded
from bayeslim.layers import LSTM, BayesLayer, Linear
from bayeslim.likelihoods import Gaussian
from bayeslim.models import ViT
from bayeslim.optim import SGLD
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative, Posterior
from bayeslim.priors import ARD, GammaARD, HeNormal, LogUniform, Normal, ScaleMixture
from bayeslim.training.ranks import join
from bayeslim.training.sharding import full_state, local, shard_, unsharded, whole

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
from system.parallel_runs import ROWS, options, refused
from training.problems import blobs, line, small

PAIRS: dict[str, dict[str, Any]] = {
    "normal": {"posterior": MeanField, "prior": Normal(0.1, 0.7)},
    "bounded": {"posterior": partial(MeanField, scale=0.01, max_scale=0.02), "prior": GammaARD(a=0.51, b=1e-8)},
    "ard": {"posterior": MeanField, "prior": ARD(), "bias_posterior": MeanField},
    "he": {"posterior": MeanField, "prior": HeNormal()},
    "mixture": {"posterior": MeanField, "prior": ScaleMixture()},
    "centred": {"posterior": MeanField, "prior": lambda weight: Normal(weight, 0.5)},
    "multiplicative": {"posterior": Multiplicative, "prior": LogUniform()},
    "tied": {"posterior": partial(KTied, k=2), "prior": Normal()},
    "tied, ard": {"posterior": partial(KTied, k=2), "prior": ARD()},
    "correlated": {"posterior": MatrixNormal, "prior": Normal()},
}


def pair(name: str, estimator: Callable[..., Any]) -> nn.Module:
    """A network with as many outputs as leave a shard smaller or empty."""
    torch.manual_seed(3)
    own: dict[str, Any] = PAIRS[name] | {"estimator": estimator}
    last: dict[str, Any] = {"posterior": MeanField, "prior": PAIRS[name]["prior"], "estimator": estimator}
    return nn.Sequential(Linear(3, 7, **own), nn.Tanh(), Linear(7, 3, **own), nn.Tanh(), Linear(3, 1, **last))


def pruned() -> nn.Module:
    network = pair("ard", bl.local_reparam)
    bl.prune_(network, threshold=-4.0)
    return network


def vision(dim: int = 16) -> nn.Module:
    torch.manual_seed(0)
    network = ViT(image=8, patch=4, dim=dim, depth=2, heads=2, hidden=32, classes=3)
    return bl.bayesianize_(network, prior=ARD(), estimator=bl.weight_sample)


def recurrent() -> nn.Module:
    """Its layers draw weights without a forward pass of their own."""
    torch.manual_seed(0)
    return nn.Sequential(LSTM(3, 4, batch_first=True, prior=Normal()), _Last(), nn.Linear(4, 3))


class _Last(nn.Module):
    def forward(self, x: Any) -> Tensor:
        return x[0][:, -1]


def kl_and_gradient(model: nn.Module) -> dict[str, Tensor]:
    model.zero_grad()
    value = bl.kl(model)
    value.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"kl": value.detach()} | whole(found)


def divergences(folder: Path) -> dict[str, Any]:
    """The KL outside of the forward pass, sharded and not, for every kind of posterior and prior."""
    networks: dict[str, Callable[[], nn.Module]] = {name: partial(pair, name, bl.local_reparam) for name in PAIRS}
    networks["pruned"] = pruned
    found: dict[str, Any] = {}
    for name, make in networks.items():
        found[name] = kl_and_gradient(make()), kl_and_gradient(shard_(make()))
    return found


def gradient(model: nn.Module, data: tuple[Tensor, Tensor], **own: Any) -> dict[str, Tensor]:
    """One step of size 1 on one batch: the gradient is what it took away."""
    model = shard_(model)
    before = {name: value.clone() for name, value in full_state(model).items()}
    bl.fit(model, data, optimizer=partial(torch.optim.SGD, lr=1.0), **options(epochs=1) | own)
    return {name: before[name] - value for name, value in full_state(model).items()}


def own_noise(folder: Path, method: str) -> dict[str, Any]:
    """The gradient with noise of each rank's own."""
    return gradient(small(method=method), blobs(13), likelihood=bl.Categorical())


def pairs(folder: Path) -> dict[str, Any]:
    """The gradient of the objective for every kind, weights drawn once per batch, with two draws per step."""
    return {name: pair_gradient(name) for name in PAIRS}


def pair_gradient(name: str) -> dict[str, Tensor]:
    x, y = line(13)
    return gradient(pair(name, bl.weight_sample), (x, y[:, :1]), likelihood=Gaussian(), samples=2, shared_noise=True)


def everything(folder: Path) -> dict[str, Any]:
    """All phases, a likelihood with a parameter, validation and patience; the ranks begin with other weights."""
    model, likelihood = small(seed=join().index, outputs=2, method="graves"), Gaussian(learn_noise=True)
    history = bl.fit(
        shard_(model),
        line(51),
        likelihood=likelihood,
        shared_noise=True,
        pretrain_epochs=2,
        kl_schedule=bl.schedules.warmup_linear(1, 2),
        validation=line(10, seed=1),
        validation_samples=3,
        patience=4,
        accumulate=2,
        clip_norm=1.0,
        **options(epochs=7),
    )
    return {"state": full_state(model) | dict(likelihood.state_dict()), "history": history.records}


def blocks(folder: Path) -> dict[str, Any]:
    """A converted transformer and a recurrent network: trained, scored, and what a rank holds of them."""
    x = torch.randn(9, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(9) % 3
    model, sequences = shard_(vision()), shard_(recurrent())
    common = {"likelihood": bl.Categorical(), "shared_noise": True} | options(epochs=3, batch_size=4)
    bl.fit(model, (x, y), validation=(x, y), **common)
    bl.fit(sequences, (torch.randn(9, 5, 3, generator=torch.Generator().manual_seed(0)), y), **common)
    with unsharded(model):
        plain = not is_sharded(model)
        prediction = bl.predict(model, x, samples=5, seed=0).mean
    return {
        "state": full_state(model) | {f"lstm.{name}": value for name, value in full_state(sequences).items()},
        "mean": bl.predict(model, x, method="mean").mean,
        "prediction": prediction,
        "plain": plain and is_sharded(model) == (join().count > 1),
        "numbers": sum(local(p).numel() for p in model.parameters()),
        "units": [name for name, module in model.named_modules() if hasattr(module, "reshard")],
        "bayes": sum(isinstance(module, BayesLayer) for module in model.modules()),
    }


def sixteen_bits(folder: Path) -> dict[str, Any]:
    """A transformer of bfloat16: its KL, what it gives and holds, and how far its scales go in twelve steps."""
    x = torch.randn(9, 1, 8, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    model = shard_(vision().bfloat16())
    divergence = kl_and_gradient(model)
    before = {name: value.clone() for name, value in full_state(model).items() if name.endswith("log_scale")}
    bl.fit(model, (x, torch.arange(9) % 3), likelihood=bl.Categorical(), shared_noise=True, **options(batch_size=4))
    after, output = full_state(model), model(x).dtype
    with unsharded(model):
        prediction = bl.predict(model, x, samples=5, seed=0).mean
    return {
        "divergence": divergence,
        "output": output,
        "types": {p.dtype for part in model.modules() if isinstance(part, Posterior) for p in part.parameters()},
        "moved": {name: (after[name] - value).abs().mean().item() for name, value in before.items()},
        "prediction": prediction,
    }


def resumed(folder: Path) -> dict[str, Any]:
    """Two epochs, then two more by a network that begins elsewhere; by other numbers of ranks in the tests."""
    whole_run, model = shard_(small(method="graves")), shard_(small(seed=1, method="graves"))
    train(shard_(small(method="graves")), folder / "run", epochs=2)
    if join().first:
        for name in ("one", "four"):
            copy = folder / name
            copy.mkdir()
            copy.joinpath("checkpoint.safetensors").write_bytes((folder / "run/checkpoint.safetensors").read_bytes())
    train(model, folder / "run")
    train(whole_run, None)
    return {"state": full_state(model), "whole": full_state(whole_run)}


def train(model: nn.Module, folder: Path | None, **own: Any) -> None:
    bl.fit(
        model,
        blobs(ROWS),
        likelihood=bl.Categorical(),
        shared_noise=True,
        validation=blobs(9, seed=1),
        patience=9,
        checkpoint=folder,
        resume=True,
        **options(**own),
    )


def refusals(folder: Path) -> dict[str, Any]:
    model, shared = shard_(small()), Linear(3, 3)
    fit = partial(bl.fit, model, blobs(), likelihood=bl.Categorical(), **options())
    pairs_of_moments, other = shard_(small(method="vdp")), Linear(3, 3)
    other.weight = shared.weight
    twice = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared, other))
    return {
        "compile": refused(lambda: fit(compile=True)),
        "autocast": refused(lambda: fit(autocast=torch.float16)),
        "sampler": refused(lambda: fit(optimizer=partial(SGLD, num_data=48, lr=0.01))),
        "moments": refused(lambda: bl.fit(pairs_of_moments, blobs(), likelihood=bl.Categorical(), **options())),
        "again": refused(lambda: shard_(model)),
        "shared": refused(lambda: shard_(twice)),
    }


def spoilt(folder: Path) -> dict[str, Any]:
    """A parameter of the last rank's shard stops being finite, where no loss shows it."""
    model = shard_(small())

    def spoil(network: nn.Module, *_: Any) -> None:
        shard = local(network.get_parameter("0.weight.log_scale").detach())
        if join().index == join().count - 1:
            shard[-1] = torch.nan

    try:
        bl.fit(model, blobs(), likelihood=bl.Categorical(), after_epoch=spoil, **options())
    except FloatingPointError as error:
        return {"message": str(error)}
    return {}


RUNS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "divergences": divergences,
    "graves": partial(own_noise, method="graves"),
    "ard": partial(own_noise, method="ard"),
    "pairs": pairs,
    "everything": everything,
    "blocks": blocks,
    "sixteen bits": sixteen_bits,
    "resumed": resumed,
    "refusals": refusals,
    "spoilt": spoilt,
}

if __name__ == "__main__":
    place = Path(sys.argv[1])
    if sys.argv[2:] == ["resume"]:
        network = shard_(small(seed=4, method="graves"))
        train(network, place)
        result = {"state": full_state(network)}
    else:
        result = {name: run(place) for name, run in RUNS.items()}
    torch.save(result, place / f"rank-{join().index}.pt")
