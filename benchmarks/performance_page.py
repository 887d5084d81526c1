"""Write docs/performance.md and its figure from the records in results/; nothing is measured.

python benchmarks/performance_page.py
"""

import json
import textwrap
from pathlib import Path
from typing import Any

from limits import predict_work, step_limit, step_seconds
from performance_figure import write

ROOT = Path(__file__).parent.parent
FILES = (
    "train_step",
    "train_step_cuda",
    "modes_in_turns_cuda",
    "predict",
    "predict_cuda",
    "scaling",
    "dissertation_tables",
    "peers",
)
Records = dict[str, dict[str, Any]]

ESTIMATOR = {"graves": "weight_sample", "graves, local_reparam": "local_reparam", "vdp": "moments", "k-tied": "k-tied"}
STEP_GOALS = [
    # record, mode, network, goal, best peer
    ("train_step", "eager", "graves", 1.8, "2.6 (IVON)"),
    ("train_step", "eager", "graves, local_reparam", 2.5, "3.0"),
    ("train_step", "compiled", "graves", 1.45, ""),
    ("train_step", "compiled", "graves, local_reparam", 1.8, ""),
    ("train_step", "eager", "vdp", 2.5, ""),
    ("train_step", "compiled", "vdp", 2.5, ""),
    ("train_step_cuda", "compiled graph", "graves", 1.20, "2.55"),
    ("train_step_cuda", "compiled", "graves", 1.20, "2.55"),
    ("train_step_cuda", "graph", "graves", 1.35, "2.55"),
    ("train_step_cuda", "eager", "graves", 1.35, "2.55"),
    ("train_step_cuda", "compiled", "graves, local_reparam", 1.85, "3.1"),
    ("train_step_cuda", "compiled graph", "k-tied", 1.15, ""),
    ("train_step_cuda", "graph", "k-tied", 1.15, ""),
]
MEMORY_GOALS = [
    ("train_step_cuda", "compiled", "graves", 1.65, "2.4"),
    ("train_step_cuda", "compiled graph", "graves", 1.65, "2.4"),
    ("train_step_cuda", "eager", "graves", 1.65, "2.4"),
    ("train_step_cuda", "compiled graph", "k-tied", 1.10, ""),
    ("train_step_cuda", "eager", "k-tied", 1.10, ""),
]
MODES = {
    "eager": "eager",
    "graph": "eager as one CUDA graph",
    "compiled": "compiled",
    "compiled graph": "compiled, one CUDA graph",
}

INTRODUCTION = [
    """What being Bayesian costs, as a ratio to the deterministic network of the same size on the same machine.
    This page is written by `python benchmarks/performance_page.py` from the records in `results/`; `make bench`
    measures again on the CPU and rewrites it, `make bench-peers` does so for the other libraries, and `bayeslim
    bench` measures training steps of your own sizes on your own machine.""",
    """All networks of a table take turns in one process; a ratio is the median over rounds of the round's ratio,
    in brackets its quartiles. Memory is the peak of torch's allocations with everything a step needs: parameters,
    optimiser state, gradients, what is saved for backward.""",
    """The limit is what a perfect implementation would cost: the least matrix products and passes over the
    weights, each at the speed measured on the machine, and noise for nothing (`benchmarks/limits.py` has the
    counts). "With noise" adds what torch takes to draw the normal numbers. Distance is ours divided by the limit.""",
]
PEER_FIGURES = """The figures of peers are the best of torchbnn 1.2, bayesian-torch 0.5.0, blitz 0.2.8 and IVON 0.1.3,
measured when the goals were set: on two CPU cores, and on one H200. Ratios on the CPU move with the speed of a shared
machine: in three measurements, of which the record is the last, eager weight_sample was 1.67 to 1.85, local_reparam
2.37 to 2.64, moments 2.71 to 3.22, compiled 1.29 to 1.42, 2.00 to 2.12 and 2.24 to 2.30. Times on CUDA are those of
`results/modes_in_turns_cuda.json` (`python benchmarks/modes_in_turns.py --device cuda`): all modes take turns with the
eager deterministic network, to which, like the goals, they are compared. Measured mode by mode, as in the table of
training steps below, that network takes 2.46 to 2.57 ms instead of 2.68, most likely because the heavier steps between
its turns lower the clocks, and ratios of medians are larger: weight_sample compiled as one graph 1.17 to 1.21,
local_reparam compiled 1.86 to 1.95. What is not one graph waits for the host and depends on how fast that is: eager
weight_sample was 1.28 to 1.63 in seven measurements. (The steps launch fewer small kernels since then.)
Memory is that of the table below. It does not count the workspace of cuBLAS, which early records counted for the
deterministic network alone (weight_sample was 1.59 then); at the eager peak there are 128 MiB with which torch sums the
gradient of a bias, in the deterministic network too. Below, every mode is compared in turns with the deterministic
network of its own, which gives larger ratios where that one is faster. Compiled moments took 1.9 times the eager
deterministic step in early records because torch 2.11 lost a gradient of theirs, and with it a quarter of the products.
Sampled weights of 32 images need 8 million normal numbers, whose drawing alone takes a tenth of the loop's time."""


def load(folder: Path) -> Records:
    """The records that exist."""
    return {name: json.loads(file.read_text()) for name in FILES if (file := folder / f"{name}.json").exists()}


def wrapped(text: str) -> str:
    """A paragraph in lines of at most 120 characters."""
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]]).replace("  ", " ")


def ratio(cost: dict[str, float], scale: float = 1.0) -> str:
    middle, low, high = (cost[key] * scale for key in ("ratio", "ratio_low", "ratio_high"))
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def section(title: str, records: Records, name: str, text: str, header: list[str], rows: list[list[str]]) -> str:
    """A table under its title, with what made it."""
    record = records[name]
    place = record["cpu"] if record["device"] == "cpu" else record["device"]
    made = f"{place}, threads: {record['threads']}, torch {record['versions']['torch']}"
    text = f"`results/{name}.json`; `{record['command']}` ({made}). {text}"
    return f"## {title}\n\n{wrapped(text)}\n\n{table(header, rows)}\n"


def images_of(count: str) -> str:
    return "1 image" if count == "1" else f"{count} images"


def verdict(value: float, goal: float) -> str:
    return f"{goal:g}, met" if value <= goal else f"{goal:g}, not met"


def goals(records: Records) -> str:
    """Ours, goal, best peer, limit and the distance to it."""
    rows: list[list[str]] = []
    for name, mode, network, goal, peer in STEP_GOALS:
        place = "CPU LeNet-300-100" if name == "train_step" else "CUDA 3 x 4096"
        work = f"{place} step, {ESTIMATOR[network]}, {MODES[mode]}"
        cost = cost_of(records, name, mode, network)
        if cost is None:
            rows.append([work, "not measured yet", f"{goal:g}", peer, "", ""])
            continue
        limit, told = cost.get("limit") or step_limit(records[name], network), verdict(cost["ratio"], goal)
        rows.append([work, ratio(cost), told, peer, f"{limit:.2f}", f"{cost['ratio'] / limit:.2f}"])
    for name, mode, network, goal, peer in MEMORY_GOALS:
        work = f"CUDA 3 x 4096 peak memory, {ESTIMATOR[network]}, {MODES[mode]}"
        memory = memory_of(records, name, mode, network)
        value = "not measured yet" if memory is None else f"{memory:.2f}"
        told = f"{goal:g}" if memory is None else verdict(memory, goal)
        rows.append([work, value, told, peer, "", ""])
    rows += predict_goals(records) if "predict" in records and "train_step" in records else []
    header = ["work", "ours", "goal", "best peer", "limit", "distance"]
    return f"## Goals\n\n{table(header, rows)}\n\n{wrapped(PEER_FIGURES)}\n"


def cost_of(records: Records, name: str, mode: str, network: str) -> dict[str, float] | None:
    """A network's time against the deterministic one: of the same mode on the CPU, always the eager one on CUDA."""
    if name == "train_step":
        return records.get(name, {}).get("steps", {}).get(mode, {}).get(network)
    steps = records.get("modes_in_turns_cuda", {}).get("steps", {})
    cost = steps.get(f"{network}, {mode}")
    if cost is None or name not in records:
        return None
    return cost | {"limit": step_seconds(records[name], network) / steps["deterministic, eager"]["seconds"]}


def memory_of(records: Records, name: str, mode: str, network: str) -> float | None:
    """A network's memory against that of the eager deterministic one."""
    steps = records.get(name, {}).get("steps", {})
    cost = steps.get(mode, {}).get(network)
    return None if cost is None else cost["memory"] / steps["eager"]["deterministic"]["memory"]


def predict_goals(records: Records) -> list[list[str]]:
    record, speeds = records["predict"], records["train_step"]["speeds"]
    sizes, images, samples = record["network"], record["images"], record["samples"]
    limit = predict_work(sizes, images, samples).seconds(speeds)
    limit /= predict_work(sizes, images, samples, drawing=False).seconds(speeds)
    rows: list[list[str]] = []
    for name in ("graves", "ard"):
        scale = record["timed_passes"] / samples
        cost = record["many"][name]
        told, distance = verdict(cost["ratio"] * scale, 1.1), f"{cost['ratio'] * scale / limit:.2f}"
        work = f"CPU predict T={samples}, {images} images, {name}, against T passes"
        rows.append([work, ratio(cost, scale), told, "2.0-8.3 (1000 images)", f"{limit:.2f}", distance])
    for key, times in record["few"].items():
        name, count = key.split(", ")
        faster = 1 / times["predict"]["ratio"]
        least = times["loop"]["seconds"] / predict_work(sizes, int(count), samples).seconds(speeds)
        told = f"10x, {'met' if faster >= 10 else 'not met'}"
        work = f"CPU predict T={samples}, {images_of(count)}, {name}, faster than a loop"
        rows.append([work, f"{faster:.1f}x", told, "1x", f"{least:.0f}x", f"{least / faster:.2f}"])
    return rows


def steps(records: Records, name: str) -> str:
    """Every method, eager and compiled."""
    record = records[name]
    modes = {mode: costs for mode, costs in record["steps"].items() if mode != "eager"}
    rows: list[list[str]] = []
    for network, cost in record["steps"]["eager"].items():
        others = [costs.get(network) for costs in modes.values()]
        times = [f"{1e3 * cost['seconds']:.2f}", ratio(cost), *(ratio(other) if other else "" for other in others)]
        limits = [f"{step_limit(record, network, noise):.2f}" for noise in (False, True)]
        sizes = [f"{other['memory_ratio']:.2f}" if other else "" for other in (cost, *others)]
        rows.append([network, *times, *limits, *sizes])
    sizes, speeds = "-".join(map(str, record["network"])), record["speeds"]
    text = f"""Network {sizes}, batch {record["batch"]}, {record["autocast"]}, fused Adam on both sides. Ratios
    are to the deterministic network in the same mode. The machine multiplies {speeds["flops"] / 1e9:.0f} GFLOP/s
    and copies {speeds["bytes"] / 1e9:.1f} GB/s at these sizes, and torch draws {speeds["normals"] / 1e6:.0f}
    million normal numbers a second."""
    memory = ["memory", *(f"memory, {mode}" for mode in modes)]
    header = ["method", "ms", "eager", *modes, "limit", "with noise", *memory]
    title = f"Training step, {'CPU' if record['device'] == 'cpu' else record['device']}"
    return section(title, records, name, text, header, rows)


def prediction(records: Records, name: str) -> str:
    record = records[name]
    samples, images = record["samples"], record["images"]
    scale = record["timed_passes"] / samples
    rows: list[list[str]] = []
    for method in ("graves", "ard"):
        cost = record["many"][method]
        work = f"{method}, {images} images, against {samples} deterministic passes"
        rows.append([work, f"{1e3 * cost['seconds']:.0f}", ratio(cost, scale)])
    for key, cost in record["few"].items():
        method, count = key.split(", ")
        work = f"{method}, {images_of(count)}, against a loop over {samples} samples"
        rows.append([work, f"{1e3 * cost['predict']['seconds']:.2f}", f"1/{1 / cost['predict']['ratio']:.1f}"])
    for key, costs in record["moments"].items():
        network, count, *way = key.split(", ")
        for what, cost in list(costs.items())[1:]:
            work = ", ".join([what, network, images_of(count), "against one deterministic pass", *way])
            rows.append([work, f"{1e3 * cost['seconds']:.2f}", ratio(cost)])
    text = (
        "LeNet-300-100 but where LeNet-5 is named; our side is a whole call of `bl.predict`; for moments also the pass"
        " alone, before the likelihood draws outputs."
    )
    if name == "predict_cuda":
        text += (
            " Passes of networks this small wait for the host: as one CUDA graph both sides are, what is left is the"
            " device's own time."
        )
    title = f"Prediction, {'CPU' if record['device'] == 'cpu' else record['device']}"
    return section(title, records, name, text, ["work", "ms", "ratio"], rows)


def scaling(records: Records) -> str:
    sweeps = records["scaling"]["sweeps"]
    rows = [
        [f"{name}, {sweep['sizes'][0]} to {sweep['sizes'][-1]}", *(f"{b:.2f}" for b in sweep["exponent"].values())]
        for name, sweep in sweeps.items()
    ]
    text = """The exponent b of `seconds ~ size^b` over the larger half of a sweep: training steps over batch,
    width and depth, predictions of 32 images over the number of samples (vdp: moments, which draw outputs only)."""
    return section("Scaling", records, "scaling", text, ["sweep", *sweeps["batch"]["exponent"]], rows)


def peers(records: Records) -> str:
    record = records["peers"]
    rows: list[list[str]] = []
    for name, cost in record["train_step"].items():
        loop = record["predict"].get(name)
        shown = f"bayeslim, {name}" if name in ESTIMATOR or name == "ard" else name
        numbers = [f"{1e3 * cost['seconds']:.2f}", ratio(cost), f"{cost['memory_ratio']:.2f}"]
        rows.append([shown, *numbers, ratio(loop) if loop else ""])
    rows += [[name, "not installed", "", "", ""] for name in record["missing"]]
    versions = ", ".join(f"{name} {number}" for name, number in record["installed"].items())
    text = f"""By `make bench-peers`: {versions or "none installed"}. LeNet-300-100, batch 256, fused Adam
    everywhere but for IVON, which is its own optimiser. Predictions: {record["images"]} images,
    {record["samples"]} samples, against as many deterministic passes."""
    header = ["library", "ms per step", "step", "memory", "prediction"]
    return section("Other libraries", records, "peers", text, header, rows)


def dissertation(records: Records) -> str:
    ours, paper = records["dissertation_tables"]["ours"], records["dissertation_tables"]["paper"]
    rows: list[list[str]] = []
    for title, key, unit, scale, size in (
        ("3.1 forward, microseconds", "forward", "3.1, microseconds", 1e6, "KiB"),
        ("3.2 epoch, milliseconds", "epoch", "3.2, milliseconds", 1e3, "MiB"),
    ):
        for method, cost in ours[key].items():
            printed, amount = paper[unit][method], paper[f"{unit[:3]}, {size}"][method]
            mine = f"{scale * cost['seconds']:.3g} ({cost['ratio']:.1f}x)"
            theirs = f"{printed:g} ({printed / paper[unit]['Dense']:.1f}x)"
            bytes_ours = f"{cost['allocated'] / (2**10 if size == 'KiB' else 2**20):.3g} {size}"
            rows.append([title, method, mine, theirs, bytes_ours, f"{amount:g} {size}"])
    for number, method in (("3.3", "Molchanov"), ("3.4", "Graves"), ("3.5", "Kingma")):
        printed = paper.get(f"{number} {method}, milliseconds", {})
        for name, cost in ours[method].items():
            theirs = f"{printed[name]:g}" if printed else ""
            rows.append([f"{number} {method}, milliseconds", name, f"{1e3 * cost['seconds']:.3g}", theirs, "", ""])
    text = """3.1 is one layer 300 -> 100 with batch 32, the others an epoch of ten such batches through
    300-100-10. Julia on another machine there, torch here: the ratio to Dense is what compares. Table 3.5 of the
    dissertation repeats Table 3.3 digit for digit, so its numbers are left out. Allocated is the sum over one
    call, released memory too."""
    header = ["table", "of", "ours", "dissertation", "allocated", "dissertation"]
    return section("The dissertation's benchmarks", records, "dissertation_tables", text, header, rows)


def page(records: Records) -> str:
    """The whole page; sections without a record are left out."""
    parts = ["# Performance\n", *(wrapped(text) + "\n" for text in INTRODUCTION), goals(records)]
    if "train_step" in records:
        parts.append("![Ratios of training steps, and how they grow with the batch](assets/performance.svg)\n")
    parts += [steps(records, name) for name in ("train_step", "train_step_cuda") if name in records]
    parts += [prediction(records, name) for name in ("predict", "predict_cuda") if name in records]
    sections = {"scaling": scaling, "peers": peers, "dissertation_tables": dissertation}
    parts += [write_section(records) for name, write_section in sections.items() if name in records]
    return "\n".join(parts)


def main() -> None:
    records = load(ROOT / "results")
    (ROOT / "docs" / "performance.md").write_text(page(records))
    if "train_step" in records:
        write(records, ROOT / "docs" / "assets")


if __name__ == "__main__":
    main()
