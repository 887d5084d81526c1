"""Write docs/performance.md and its figure from the records in results/; nothing is measured.

python benchmarks/performance_page.py
"""

import json
from pathlib import Path

from limits import step_seconds
from performance_figure import write
from performance_goals import goals, is_ours
from performance_markdown import Records, images_of, ratio, table, wrapped

from bayeslim.step_costs import ONE_GRAPH

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
    counts). "With noise" adds what torch takes to draw the normal numbers. As a ratio it is divided by the measured
    time of the deterministic network, which is no perfect implementation itself: a limit below 1 is possible. Distance
    is ours divided by the limit.""",
]


def load(folder: Path) -> Records:
    """The records that exist."""
    return {name: json.loads(file.read_text()) for name in FILES if (file := folder / f"{name}.json").exists()}


def section(title: str, records: Records, name: str, text: str, header: list[str], rows: list[list[str]]) -> str:
    """A table under its title, with what made it."""
    record = records[name]
    place = record["cpu"] if record["device"] == "cpu" else record["device"]
    made = f"{place}, threads: {record['threads']}, torch {record['versions']['torch']}"
    text = f"`results/{name}.json`; `{record['command']}` ({made}). {text}"
    return f"## {title}\n\n{wrapped(text)}\n\n{table(header, rows)}\n"


def steps(records: Records, name: str) -> str:
    """Every method, eager and compiled."""
    record = records[name]
    modes = {mode: costs for mode, costs in record["steps"].items() if mode != "eager"}
    rows: list[list[str]] = []
    for network, cost in record["steps"]["eager"].items():
        others = [costs.get(network) for costs in modes.values()]
        times = [f"{1e3 * cost['seconds']:.2f}", ratio(cost), *(ratio(other) if other else "" for other in others)]
        limits = [f"{1e3 * step_seconds(record, network, noise):.2f}" for noise in (False, True)]
        sizes = [f"{other['memory_ratio']:.2f}" if other else "" for other in (cost, *others)]
        rows.append([network, *times, *limits, *sizes])
    sizes, speeds = "-".join(map(str, record["network"])), record["speeds"]
    one, whole = record["steps"].get("compiled", {}).get(ONE_GRAPH), ""
    if one is not None:
        whole = f"""Compiled, that one is by `torch.compile` and torch's fused Adam, as one has it without this library;
        `fit` compiles Adam with the rest, and the deterministic network takes {ratio(one)} that way. """
    text = f"""Network {sizes}, batch {record["batch"]}, {record["autocast"]}, fused Adam on both sides. Ratios
    are to the deterministic network in the same mode. {whole}The machine multiplies {speeds["flops"] / 1e9:.0f} GFLOP/s
    and copies {speeds["bytes"] / 1e9:.1f} GB/s at these sizes, and torch draws {speeds["normals"] / 1e6:.0f}
    million normal numbers a second."""
    memory = ["memory", *(f"memory, {mode}" for mode in modes)]
    header = ["method", "ms", "eager", *modes, "limit, ms", "with noise, ms", *memory]
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
        for loop in (key for key in cost if key.startswith("loop")):
            work = f"{method}, {images_of(count)}, against a {loop.replace('loop', f'loop over {samples} samples')}"
            faster = cost[loop]["ratio"] / cost["predict"]["ratio"]
            rows.append([work, f"{1e3 * cost['predict']['seconds']:.2f}", f"1/{faster:.1f}"])
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
        shown = f"bayeslim, {name}" if is_ours(name) and name != "deterministic" else name
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
