"""The comparison of all methods on the page: records, commands and notes."""

from __future__ import annotations

from statistics import mean

from bayeslim_papers.comparison.table import table
from bayeslim_papers.results_page.entry import Entry, Record, seeds_of

__all__ = ["IMAGES", "UCI"]

SAMPLERS = ("cvadam", "sghmc", "dfp")
CRUDE = """The rows `laplace` are draws of weights at a hardly tuned prior precision, in a network that is not
    linearised: they say nothing about Laplace's approximation as it is used (see the notes)."""
LAPLACE = """
- **`laplace` is no verdict on Laplace's approximation.** It is the crudest form: weights are drawn from a
  Kronecker-factored Gaussian around MAP, with MAP's prior precision of 0.1 or 1, and put into the network as it is.
  Such draws are far too wide, and a network that is not linearised does not bear them (Immer et al. 2021). What people
  use is the linearised network with a precision tuned by the evidence, which is not compared here. Until it is, leave
  this row out of any comparison. Its slim network is MAP."""


def uci(record: Record) -> str:
    """What was run."""
    config = record["config"]
    minutes = sum(run.get("seconds", 0) for run in record["runs"]) / 60
    return f"""One core, {minutes:.0f} minutes. One hidden layer of {config["hidden"][0]} ReLU units, the first
    {seeds_of(record)} of the standard 20 splits, mean ± standard error over them, {config["epochs"]} epochs for all,
    one learned noise; one hyper-parameter per method chosen from two values on a fifth of the training rows of each
    split. Coverage is that of 95 % intervals; the slim network is the single one that a method ends with; pruned
    weights (sparsity) are those with ln alpha > 3 (dfp: as asked). {CRUDE}"""


def uci_notes(record: Record) -> str:
    """Who wins, at what price."""
    sparse = {name: 100 * _mean(record, "ard", name, "sparsity") for name in ("bostonHousing", "wine-quality-red")}
    ensemble = mean(own["ensemble"]["train_ratio"] for own in record["costs"].values())
    vdp = mean(own["vdp"]["predict_ratio"] for own in record["costs"].values())
    sampled = sorted(
        own[name]["predict_ratio"]
        for own in record["costs"].values()
        for name in own
        if name not in ("map", "ensemble", "vdp", *SAMPLERS)
    )
    top = {name: max(record["grids"][name]["learning rate"]) for name in SAMPLERS}
    tried = [run["learning rate"] == top[run["method"]] for run in record["runs"] if run["method"] in SAMPLERS]
    skipped = sorted({f"{run['method']}: {run['skipped']}" for run in record["runs"] if "skipped" in run})
    left_out = f"\n- Not run: {'; '.join(skipped)}." if skipped else LAPLACE
    return f"""
- **The deep ensemble wins**: best mean rank in RMSE and NLL, at {ensemble:.0f} times the training time. MC dropout is
  second in NLL and cheap, but far off on energy.
- **Of the variational methods `ard` has the best errors** (level with MAP, with better NLL and coverage on three of
  the four sets) and prunes {sparse["bostonHousing"]:.0f} % of the weights on Boston and
  {sparse["wine-quality-red"]:.0f} % on wine for nothing; `kingma` and `ard` lead in NLL. None beats MAP on energy.
- `vdp` is well calibrated and predicts in {vdp:.1f} times a plain pass, where sampling takes {sampled[0]:.0f} to
  {sampled[-1]:.0f}.
- **CV-Adam, SGHMC and DFP come last in RMSE**, beside Laplace, at this budget: they took the top of their
  learning-rate grid in {sum(tried)} of {len(tried)} splits, so more epochs or larger rates would help them; their
  gradients are clipped,
  so they are not exact samplers here. Their grids were set by hand on validation rows of two sets, the other methods'
  were not tuned.{left_out}"""


def images(record: Record) -> str:
    """What was run."""
    config = record["config"]
    outliers = {"mnist": "Fashion-MNIST", "fashion-mnist": "MNIST"}[config["sets"][0]]
    timed = record.get("costs_machine", record["machine"])
    names = {run["method"] for run in record["runs"]}
    crude = f" {CRUDE}" if "laplace" in names else ""
    skipped = "" if "laplace" in names else " Laplace was not run."
    slow = ", ".join(name for name in ("laplace", *SAMPLERS) if name in names)
    return f"""LeNet-300-100, {seeds_of(record)} seeds, mean ± standard error, {config["epochs"]} epochs of batch
    {config["batch_size"]} for all; one hyper-parameter per method chosen from two values on a fifth of the training
    images, by the first seed. {config["samples"]} samples. Outliers are {outliers}, told apart by the entropy of the
    prediction. Most were trained on an H200, these on a CPU: {slow}. Times are those of another device:
    {timed["device"]}, {timed["threads"]} threads. The slim network is the single one that a method
    ends with; pruned weights are those with ln alpha > 3 (dfp: as asked).{skipped}{crude}"""


def images_notes(record: Record) -> str:
    """Who wins in what, and who is cheap."""
    data = record["config"]["sets"][0]
    names = list(dict.fromkeys(run["method"] for run in record["runs"] if "skipped" not in run))
    scores = {key: {name: _mean(record, name, data, key) for name in names} for key in ("accuracy", "nll", "ece")}
    outliers = {name: _mean(record, name, data, "ood_auroc") for name in names}
    best = {
        "accuracy": max(names, key=lambda name: scores["accuracy"][name]),
        "nll": min(names, key=lambda name: scores["nll"][name]),
        "ece": min(names, key=lambda name: scores["ece"][name]),
        "outliers": max(names, key=lambda name: outliers[name]),
    }
    others = [name for name in names if name not in (*SAMPLERS, "laplace")]
    lowest = min(scores["accuracy"][name] for name in others) > max(scores["accuracy"][name] for name in SAMPLERS)
    least = "the least" if lowest else "some of the least"
    slim = [name for name in names if _mean(record, name, data, "sparsity") > 0.5]
    smallest = min(slim, key=lambda name: _mean(record, name, data, "slim_bytes"))
    smaller = _mean(record, "map", data, "slim_bytes") / _mean(record, smallest, data, "slim_bytes")
    return f"""
- Best accuracy: `{best["accuracy"]}` ({100 * scores["accuracy"][best["accuracy"]]:.2f} %, map
  {100 * scores["accuracy"]["map"]:.2f}); best NLL: `{best["nll"]}` ({scores["nll"][best["nll"]]:.4f}, map
  {scores["nll"]["map"]:.4f}); best calibrated: `{best["ece"]}` (ECE {scores["ece"][best["ece"]]:.4f}, map
  {scores["ece"]["map"]:.4f}); best at outliers: `{best["outliers"]}` (AUROC {outliers[best["outliers"]]:.3f}, map
  {outliers["map"]:.3f}).
- The smallest network is that of `{smallest}`: {smaller:.1f} times fewer bytes than a plain one, at
  {100 * _mean(record, smallest, data, "single"):.2f} % by itself.
- CV-Adam, SGHMC and DFP have {least} accuracies of all at this budget, as on the small
  regressions: their cycles leave a snapshot a quarter of the epochs.{LAPLACE if "laplace" in names else ""}"""


def _mean(record: Record, method: str, data: str, key: str) -> float:
    return mean(run[key] for run in record["runs"] if (run["method"], run["data"]) == (method, data))


def _of_images(data: str, title: str) -> Entry:
    command = f"bayeslim reproduce comparison --data {data} --root DATA --device cuda"
    return Entry(f"comparison_{data.replace('-', '_')}", title, command, table, images, images_notes)


UCI: tuple[Entry, ...] = (
    Entry(
        "comparison_uci",
        "All methods on small regressions",
        "bayeslim reproduce comparison --data uci --splits 0 1 2 3 4 --root DATA",
        table,
        uci,
        uci_notes,
    ),
)
IMAGES: tuple[Entry, ...] = (
    _of_images("mnist", "All methods on MNIST"),
    _of_images("fashion-mnist", "All methods on Fashion-MNIST"),
)
