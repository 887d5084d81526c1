"""Notes on the k-tied posteriors."""

from __future__ import annotations

from statistics import mean

from bayeslim.experiments.k_tied.paper import rows
from bayeslim.experiments.results_page.entry import Record, seeds_of

__all__ = ["mnist", "mnist_notes"]

POSTERIORS = ("mean-field", "1-tied", "2-tied", "3-tied")


def mnist(record: Record) -> str:
    """What was run."""
    config = record["config"]
    return f"""One H200, {seeds_of(record)} seeds, mean ± standard deviation; {"-".join(map(str, config["sizes"]))};
    the paper's numbers in parentheses. Learning rate {config["lr"]:g} and prior {config["prior_std"]:g} were chosen on
    the validation images from the paper's grids (mean-field -ELBO 0.63 against 0.68 to 6.6 for the other settings
    tried)."""


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
    cut = mean(run["truncated"]["rank 1"]["nelbo"] for run in _runs(record, "mean-field")) - nelbo["mean-field"]
    table = rows("mnist", "table")
    half = _runs(record, "2-tied")[0]["parameters"] / _runs(record, "mean-field")[0]["parameters"]
    return f"""What reproduces:

- Tying leaves {100 * half:.0f} % of the parameters at nearly the same accuracy: 2-tied loses {lost:.1f} points to
  mean-field. The best -ELBO of all four is that of {best}.
- Convergence without annealing is much faster when tied: validation -ELBO {last["2-tied"]:.4g} (2-tied) against
  {last["mean-field"]:.4g} after {record["config"]["probe_steps"][-1]} steps (paper {right["2-tied"][1][-1]} against
  {right["mean-field"][1][-1]}).
- After training, scales of rank 2 are as good as full rank; rank 1 is clearly worse.

What does not, and why:

- -ELBO is {surplus[0]:.2f} to {surplus[-1]:.2f} nats above the paper's, for every posterior; NLL and accuracy are at
  its level, so the surplus is KL. Three learning rates and two priors did not close it (3e-3 is the largest of the
  paper's grid). The most likely reason is a difference in initial scales: the paper's own value at step 1000 does not
  fit the 0.01 it states.
- 3-tied is not better than 2-tied here: -ELBO {nelbo["3-tied"]:.3f} against {nelbo["2-tied"]:.3f}.
- Rank 1 costs {cut:.2f} nats, not {table["rank 1"][0] - table["mean-field"][0]:.0f}: our trained scales are closer to
  rank 1.
- The signal-to-noise ratios are far larger. The mean over parameters, as the paper reports it, is dominated by units
  that never fire (no noise at all, {mean(means):.0e}); the table shows the median. The order is the paper's: tied
  scales start with {snr["2-tied"][0] / snr["mean-field"][0]:.0f} times the ratio of mean-field ones and fall to about
  {snr["2-tied"][-1]:.0f} once they have converged."""


def _runs(record: Record, posterior: str) -> list[Record]:
    return [run for run in record["runs"] if run["posterior"] == posterior]


def _score(record: Record, posterior: str, key: str) -> float:
    return mean(run["annealed"][key] for run in _runs(record, posterior))


def _snr(record: Record, posterior: str) -> list[float]:
    """The median ratio at every probe, averaged over seeds."""
    runs = _runs(record, posterior)
    return [mean(probe["snr_median"] for probe in probes) for probes in zip(*(r["probes"] for r in runs), strict=True)]
