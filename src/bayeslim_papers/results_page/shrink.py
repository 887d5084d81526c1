"""The LeNets that were really made smaller: record, command, table and notes."""

from __future__ import annotations

from bayeslim_papers.results_page.entry import Entry, Record

__all__ = ["ENTRIES"]

NETWORKS = ("LeNet-300-100", "LeNet-5-Caffe")


def lenets(record: Record) -> str:
    """What was run."""
    return f"""{record["threads"]} CPU threads, one process, interleaved medians, one seed each. The networks:
    {record["networks"]}. Without `--networks` the script trains its own, so its numbers will differ a little."""


def table(record: Record) -> str:
    """One column per network."""
    columns = [_column(record[name]) for name in NETWORKS]
    rows = [f"| {what} | {' | '.join(column[what] for column in columns)} |" for what in columns[0]]
    return "\n".join([f"| | {' | '.join(NETWORKS)} |", "|---" * (1 + len(NETWORKS)) + "|", *rows])


def notes(record: Record) -> str:
    """The residual network, and where the time is."""
    found = record["ResNet-18, width 16"]
    work, times = found["multiply-adds"], found["milliseconds, batch 8"]
    return f"""A ResNet-18 of width 16 with half of its channels pruned: {work["after"] / 1e6:.1f} instead of
    {work["before"] / 1e6:.1f} million multiply-adds, {times["compacted"]:.1f} instead of {times["masked"]:.1f} ms at
    batch 8, outputs equal to {found["compacted equals masked to"]:.0e}. LeNet-5 gains little at batch 1000: its time
    is in the convolutions, which lose few whole channels."""


def _column(found: Record) -> dict[str, str]:
    size, times = found["bytes"], found["milliseconds"]
    before, after = found["unpruned"], found["pruned and compacted"]
    images = found["images scored by samples"]
    mean_weights, slim = found["unpruned, mean weights"], found["slim file, mean weights"]
    return {
        "weights pruned (log alpha > 3)": f"{100 * found['sparsity']:.1f} %",
        "bytes, float32 -> slim 16 bit": f"{size['dense float32']} -> {size['slim 16 bit']} ({size['ratio']:.0f}x)",
        "multiply-adds": "{before} -> {after}".format(**found["multiply-adds"]),
        **{f"{batch}, ms": _faster(times[batch], found["sparse layers"]) for batch in ("batch 1000", "batch 1")},
        "images for the next two rows": str(images),
        "accuracy % by samples, unpruned -> pruned and compacted": (
            f"{100 * before['accuracy']:.2f} -> {100 * after['accuracy']:.2f}"
        ),
        "ECE, same": f"{before['ece']:.4f} -> {after['ece']:.4f}",
        "accuracy % of the mean weights, unpruned -> slim file": (
            f"{100 * mean_weights['accuracy']:.2f} -> {100 * slim['accuracy']:.2f}"
        ),
        "random pruning, same counts per layer: accuracy %": (
            f"{100 * found['random pruning, same counts']['accuracy']:.1f}"
        ),
        "compacted equals masked to": f"{found['compacted equals masked to']:.0e}",
    }


def _faster(times: dict[str, float], layers: dict[str, str]) -> str:
    """Dense against the compacted network, with sparse layers where there are any."""
    all_dense = all(kind.startswith("dense") for kind in layers.values())
    best = times["compacted"] if all_dense else times["compacted, sparse"]
    return f"{times['dense']:.3g} -> {best:.3g} ({times['dense'] / best:.1f}x)"


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "shrink",
        "LeNets pruned, compacted and stored in 16 bits",
        "python benchmarks/shrink.py --root DATA --networks A B",
        table,
        lenets,
        notes,
    ),
)
