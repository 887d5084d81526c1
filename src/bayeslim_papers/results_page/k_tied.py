"""The k-tied posteriors on the page: records, commands and notes."""

from __future__ import annotations

import math
from statistics import mean

from bayeslim_papers.k_tied.paper import rows
from bayeslim_papers.k_tied.table import table
from bayeslim_papers.results_page.entry import Entry, Notes, Record, seeds_of

__all__ = ["ENTRIES"]

POSTERIORS = ("mean-field", "1-tied", "2-tied", "3-tied")


def mnist(record: Record) -> str:
    """What was run."""
    config = record["config"]
    return f"""One H200, {seeds_of(record)} seeds, mean ± standard deviation; {"-".join(map(str, config["sizes"]))};
    the paper's numbers in parentheses. Learning rate {config["lr"]:g} and prior {config["prior_std"]:g} were chosen on
    the validation images from the paper's grids (mean-field -ELBO 0.63 against 0.68 to 6.6 for the other settings
    tried). The networks without annealing (signal-to-noise ratios and -ELBO by steps) have a learning rate of
    {config["probe_lr"]:g} and start from scales of {config["probe_scale"]:g}: with these the paper's -ELBO at step 1000
    is met, with the {config["scale"]:g} that it states it cannot be. {_start(config)}"""


def mnist_notes(record: Record) -> str:
    """What reproduces and what does not."""
    paper = rows("mnist", "figure 6 left")
    nelbo = {name: _score(record, name, "nelbo") for name in POSTERIORS}
    surplus = sorted(nelbo[name] - paper[name][0] for name in POSTERIORS)
    best = min(POSTERIORS, key=lambda name: nelbo[name])
    lost = _score(record, "mean-field", "accuracy") - _score(record, "2-tied", "accuracy")
    last = {name: mean(run["probes"][-1]["validation_nelbo"] for run in _runs(record, name)) for name in POSTERIORS}
    right = rows("mnist", "figure 6 right")
    snr = {name: _snr(record, name) for name in POSTERIORS}
    means = [probe["snr"] for run in _runs(record, "mean-field") for probe in run["probes"]]
    cut = _cut(record, "rank 1") - nelbo["mean-field"]
    table = rows("mnist", "table")
    config = record["config"]
    weights = config["sizes"][0] * config["sizes"][1] + config["sizes"][1] ** 2 + config["sizes"][1] * 10
    start = math.log(config["prior_std"] / config["probe_scale"]) - 0.5
    alone = [weights / 50_000 * (start - config["probe_lr"] * step) for step in config["probe_steps"]]
    half = _runs(record, "2-tied")[0]["parameters"] / _runs(record, "mean-field")[0]["parameters"]
    return f"""What reproduces:

- Tying leaves {100 * half:.0f} % of the parameters at nearly the same accuracy: 2-tied loses {lost:.1f} points to
  mean-field. The best -ELBO of all four is that of {best}.
- Convergence without annealing is much faster when tied: validation -ELBO {last["2-tied"]:.4g} (2-tied) against
  {last["mean-field"]:.4g} after {record["config"]["probe_steps"][-1]} steps (paper {right["2-tied"][1][-1]} against
  {right["mean-field"][1][-1]}). That is how Adam moves, not a better bound: the logarithm of a free scale by the
  learning rate in every step, that of a product of two factors by twice as much. From this alone the KL of mean-field
  would be {", ".join(f"{value:.1f}" for value in alone)} nats an image at steps
  {", ".join(map(str, config["probe_steps"]))}, nearly all that is measured. At twice the learning rate it has a -ELBO
  of 40.5, 17.9 and 3.2 there (seed 0, noted by hand): most of the difference, not all.
- After training, scales of rank 2 are as good as full rank; rank 1 is clearly worse.

What does not, and why:

- -ELBO is {surplus[0]:.2f} to {surplus[-1]:.2f} nats above the paper's, for every posterior; NLL and accuracy are at
  its level, so the surplus is KL. Three learning rates and two priors did not close it (3e-3 is the largest of the
  paper's grid), and the reason is not known. Initial scales are hardly it: the paper's own value at step 1000 fits
  scales below the 0.01 it states, and at this rate they are left behind within some thousand steps.
- 3-tied is not better than 2-tied here: -ELBO {nelbo["3-tied"]:.3f} against {nelbo["2-tied"]:.3f}.
- Rank 1 costs {cut:.2f} nats, not {table["rank 1"][0] - table["mean-field"][0]:.0f}: our trained scales are closer to
  rank 1.
- The signal-to-noise ratios are far larger. The mean over parameters, as the paper reports it, is dominated by units
  that never fire (no noise at all, {mean(means):.0e}); the table shows the median. The order is the paper's: tied
  scales start with {snr["2-tied"][0] / snr["mean-field"][0]:.0f} times the ratio of mean-field ones and fall to about
  {snr["2-tied"][-1]:.0f} once they have converged."""


def imdb(record: Record) -> str:
    """What was run."""
    config = record["config"]
    return f"""{seeds_of(record)} seeds, mean ± standard deviation; the paper's numbers in parentheses.
    {config["epochs"]} epochs, at the end of which the weight of the KL is 1. Learning rate {config["lr"]:g} and prior
    {config["prior_std"]:g} have the best -ELBO on the validation reviews (mean-field, seed 0: 0.94; with 3e-3 1.12,
    with 3e-4 1.98, with 1e-4 6.55, with 3e-4 and the prior 0.3 2.34; these four were noted by hand).
    {_start(config)}"""


def imdb_notes(record: Record) -> str:
    """What reproduces and what does not."""
    paper, table = rows("imdb", "figure 6"), rows("imdb", "table")
    nelbo, nll, accuracy = (
        {name: _score(record, name, key) for name in POSTERIORS} for key in ("nelbo", "nll", "accuracy")
    )
    points = sorted(accuracy[name] - paper[name][2] for name in POSTERIORS)
    worse = sorted(nll[name] - paper[name][1] for name in POSTERIORS)
    surplus = sorted(nelbo[name] - paper[name][0] for name in POSTERIORS)
    kl, theirs = nelbo["mean-field"] - nll["mean-field"], paper["mean-field"][0] - paper["mean-field"][1]
    cut = {f"rank {k}": _cut(record, f"rank {k}") - nelbo["mean-field"] for k in (1, 2, 3)}
    return f"""What reproduces:

- Accuracy: {points[0]:+.1f} to {points[-1]:+.1f} points from the paper's, and the order is the paper's, mean-field
  before the tied ones.
- Tying all but removes the scales of the LSTM from the parameters without a worse -ELBO (3-tied {nelbo["3-tied"]:.2f},
  mean-field {nelbo["mean-field"]:.2f}).
- After training, scales of rank 1 to 3 are as accurate as full ones.

What does not, and why:

- NLL is {worse[0]:.2f} to {worse[-1]:.2f} above the paper's and -ELBO {surplus[0]:.2f} to {surplus[-1]:.2f}: the
  networks are overconfident. The embedding, nine tenths of the parameters, is a point estimate, which goes on fitting
  the training reviews (loss 0.1) as long as one trains. The KL of mean-field is {kl:.2f} nats a review, theirs
  {theirs:.2f}; the five settings tried do not come near. The likeliest reason is a choice of the
  epoch on the validation reviews, of which the paper says nothing.
- Cutting to rank 1 costs {cut["rank 1"]:.2f} nats, to rank 3 {cut["rank 3"]:.3f} (paper
  {table["rank 1"][0] - table["mean-field"][0]:.2f} and {table["rank 3"][0] - table["mean-field"][0]:.2f})."""


def cifar10(record: Record) -> str:
    """What was run."""
    config = record["config"]
    weight = record["runs"][0]["kl_weight"]
    return f"""{seeds_of(record)} seed, {config["epochs"]} epochs, products in {config["precision"]}, learning rate
    {config["lr"]:g} and prior {config["prior_std"]:g} as they stand in the file, not searched for. The paper trains
    this network on CIFAR-100, twice as long. The staircase reaches a KL weight of {weight:.2f} by then.
    {_start(config)}"""


def cifar10_notes(record: Record) -> str:
    """What tying does here."""
    nelbo, accuracy = ({name: _score(record, name, key) for name in POSTERIORS} for key in ("nelbo", "accuracy"))
    tied = sorted(accuracy[name] for name in POSTERIORS[1:])
    return f"""
- Tied scales are learnt much sooner: after these epochs -ELBO is {nelbo["2-tied"]:.1f} (2-tied) against
  {nelbo["mean-field"]:.1f} (mean-field), and accuracy {tied[0]:.1f} to {tied[-1]:.1f} % against
  {accuracy["mean-field"]:.1f} %. That is the paper's point, of MNIST and IMDB; for its CNN on CIFAR-100 it finds little
  difference, after twice as many epochs.
- Cutting the scales of the trained mean-field network to rank 1 makes its -ELBO smaller, not larger: they are far from
  converged."""


def resnet(record: Record) -> str:
    """What was run."""
    config = record["config"]
    return f"""{seeds_of(record)} seed and {config["epochs"]} epochs, products in {config["precision"]}; the paper has
    700 epochs at a learning rate of 1e-4. So that scales come near their bound in this time, the learning rate is
    {config["lr"]:g} and the KL grows over {config["ramp"]} epochs instead of 50."""


def resnet_notes(record: Record) -> str:
    """What reproduces and what does not."""
    paper = rows("resnet", "table 3")
    full, cut = record["runs"][0]["annealed"], record["runs"][0]["truncated"]
    lost = {f"rank {k}": full["accuracy"] - cut[f"rank {k}"]["accuracy"] for k in (1, 2, 3)}
    theirs = {name: paper["mean-field"][2] - paper[name][2] for name in lost}
    return f"""
- Scales of rank 2 and 3 are as good as full ones, with half of the parameters: they lose {lost["rank 2"]:.2f} and
  {lost["rank 3"]:.2f} points (paper {theirs["rank 2"]:.1f} and {theirs["rank 3"]:.1f}).
- So is rank 1 here ({lost["rank 1"]:.2f} points), which costs the paper {theirs["rank 1"]:.1f} points and much
  calibration; most likely because scales that all started alike have not parted in {record["config"]["epochs"]} epochs.
- Accuracy is {paper["mean-field"][2] - full["accuracy"]:.1f} points below the paper's and -ELBO
  {full["nelbo"] - paper["mean-field"][0]:.0f} nats above, for want of epochs: the loss was still falling."""


def _start(config: Record) -> str:
    return f"Scales of mean-field all start at {config['scale']:g}, where the paper draws them from N(0.01, 0.001)."


def _cut(record: Record, rank: str) -> float:
    return mean(run["truncated"][rank]["nelbo"] for run in _runs(record, "mean-field"))


def _runs(record: Record, posterior: str) -> list[Record]:
    return [run for run in record["runs"] if run["posterior"] == posterior]


def _score(record: Record, posterior: str, key: str) -> float:
    return mean(run["annealed"][key] for run in _runs(record, posterior))


def _snr(record: Record, posterior: str) -> list[float]:
    """The median ratio at every probe, averaged over seeds."""
    runs = _runs(record, posterior)
    return [mean(probe["snr_median"] for probe in probes) for probes in zip(*(r["probes"] for r in runs), strict=True)]


def _entry(part: str, title: str, options: str = "", *notes: Notes) -> Entry:
    command = f"bayeslim reproduce k-tied --part {part}{options} --device cuda"
    return Entry(f"k_tied_{part}", title, command, table, *notes)


ENTRIES: tuple[Entry, ...] = (
    _entry("mnist", "k-tied: a perceptron on MNIST", "", mnist, mnist_notes),
    _entry(
        "cifar10",
        "k-tied: a convolutional network on CIFAR-10",
        " --seeds 1 --epochs 150",
        cifar10,
        cifar10_notes,
    ),
    _entry("cifar100", "k-tied: a convolutional network on CIFAR-100"),
    _entry("imdb", "k-tied: an LSTM on IMDB", " --epochs 130", imdb, imdb_notes),
    _entry(
        "resnet",
        "k-tied: a residual network on CIFAR-10",
        " --epochs 40 --lr 5e-4 --ramp 8 --precision bfloat16",
        resnet,
        resnet_notes,
    ),
)
