"""The goals table of the performance page: ours, goal, best peer, limit, and the distance to it."""

from limits import predict_work, step_seconds
from performance_markdown import Records, images_of, ratio, table, wrapped

from bayeslim.step_costs import OUR_PRODUCTS

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

NOTES = """The figures of peers are the best of torchbnn 1.2, bayesian-torch 0.5.0, blitz 0.2.8 and IVON 0.1.3,
measured when the goals were set: on two CPU cores, and on one H200. Our own measurement ("Other libraries",
below) is kinder to them: {peers}.

**Training on a CPU.** Ratios move with the speed of a shared machine, whose plain step took 2.4 to 3.5 ms in
five measurements, of which the record is the last: eager weight_sample 1.34 to 1.55, local_reparam 1.71 to
1.94, moments 2.08 to 2.25; compiled 0.76 to 0.80, 1.18 to 1.23 and 1.36 to 1.40. Linear layers have functions
of their own in eager training (`kernels/eager_cpu.py`; [Kernels](kernels.md) says how to see which way a layer
takes).

torch multiplies float32 matrices by MKL, which on AMD's processors runs AVX2 code. Where they have AVX-512,
large products of Bayesian linear layers are oneDNN's instead (`kernels/onednn.py`), which comes with torch: on this
processor, a Zen 5, in 0.43 to 0.61 of the time (0.83 for the smallest) (`python benchmarks/products.py`,
`results/products.json`); on an Intel one, where MKL stays, in 0.8 to 1.9 times the time (2 threads, noted by
hand). The deterministic network is as torch has it, like that of the goals and of other libraries. By the same
products it takes {plain_products} of its time, compiled and in one graph {plain_compiled} ("our products" in
the table below); against that the record is, eager, {eager_products}, and compiled {compiled_products}. So much
costs being Bayesian; the rest is what one gains by training with this library on such a processor.

Compiled, the deterministic network is by `torch.compile` and torch's fused Adam, as one has it without this
library. `fit` compiles Adam with the rest (`training/one_graph.py`). The KL is one loop, joined to the one that
prepares the weights, and what cannot change is not checked before every step (`training/compiling.py`). In
exchange one graph keeps noise and standard deviations between its passes: 2.4 to 2.7 times the memory of the
deterministic network.

What each path is worth, as a share of an eager step of LeNet-300-100, of LeNet-5 and of a small encoder: draw,
product and KL as one function 15 to 18, 6 to 8 and 7 to 15 %; oneDNN's products, on an AMD processor with
AVX-512, 26 % with LeNet-300-100 and 28 to 35 % with the encoder; the table of normal numbers 8 to 12 % with
LeNet-5 and the encoder by drawn outputs; keeping freed memory 15 % with LeNet-5 by drawn outputs, and nothing
elsewhere.

The records of compiled steps are from before two paths were dropped: oneDNN's products in compiled code, and two
products as one batch in compiled code, for the mean and variance of local_reparam. Each served one model of
processor, or gained less than 10 % of a step outside a perceptron. Those of predictions are from before these
were planned once.

Without gain, and left out: a wrapper in C++, no patterns of Inductor, products without the sums that it joins
to them, gradients of the KL apart from the others, features first in eager code (the copies take what products
gain).

**Training on CUDA.** Times are those of `results/modes_in_turns_cuda.json` (`python
benchmarks/modes_in_turns.py --device cuda`): all modes take turns of about 50 steps, after which `fit` waits
for the device, with the eager deterministic network, to which, like the goals, they are compared. Eager steps,
and compiled ones that are not one graph, wait for the host where that is slow: in eleven measurements on
different machines eager weight_sample took 1.22 to 1.67, compiled 1.13 to 1.30, as one graph 1.11 to 1.19.
Measured mode by mode, as in the table of training steps below, with the deterministic network of the same mode,
ratios are larger: weight_sample compiled as one graph 1.17 to 1.21, local_reparam compiled 1.86 to 1.95.

Memory is that of the table below, without the workspace of cuBLAS. At the peak of the eager deterministic
network there are 128 MiB with which torch sums the gradient of a bias; ours is a product with ones, in the
function that also draws and multiplies (`kernels/cuda/functions.py`), and needs none.

**Prediction on a CPU.** A loop over sampled weights draws 266 thousand normal numbers per network, `predict`
with 32 images 41 thousand, the fewest with the right joint distribution of the outputs: 6.5 times less. The
loop draws by the same generator, which is twice as fast as torch's, and multiplies by the same products, so
that a faster generator makes both faster, and ten times cannot be had there: in three measurements 4.9 to 6.0
times by sampled weights (7.2 to 10.2 against a loop in plain torch), 8.7 to 10.3 times by drawn outputs (7.8 to
10.0). Ten times it is up to 4 images by sampled weights and up to 16 by drawn outputs (table of predictions,
below). Of the 30 ms of 32 images by sampled weights 12 are noise, 7 products and sums that nothing can share, 6
the factors of the first layer. Smaller groups of networks, noise in pieces that stay in the cache and noise by
two threads change nothing or take longer."""


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
        limit, told = step_seconds(records[name], network) / cost["plain"], verdict(cost["ratio"], goal)
        rows.append([work, ratio(cost), told, peer, f"{limit:.2f}", f"{cost['ratio'] / limit:.2f}"])
    for name, mode, network, goal, peer in MEMORY_GOALS:
        work = f"CUDA 3 x 4096 peak memory, {ESTIMATOR[network]}, {MODES[mode]}"
        memory = memory_of(records, name, mode, network)
        value = "not measured yet" if memory is None else f"{memory:.2f}"
        told = f"{goal:g}" if memory is None else verdict(memory, goal)
        rows.append([work, value, told, peer, "", ""])
    rows += predict_goals(records) if "predict" in records and "train_step" in records else []
    header = ["work", "ours", "goal", "best peer", "limit", "distance"]
    text = NOTES.format(
        peers=_peers(records),
        plain_products=_plain_products(records, "eager"),
        plain_compiled=_plain_products(records, "compiled"),
        eager_products=_against_our_products(records, "eager"),
        compiled_products=_against_our_products(records, "compiled"),
    )
    paragraphs = "\n\n".join(wrapped(paragraph) for paragraph in text.split("\n\n"))
    return f"## Goals\n\n{table(header, rows)}\n\n{paragraphs}\n"


def _peers(records: Records) -> str:
    """The quickest other libraries of our own measurement."""
    found = records.get("peers")
    if found is None:
        return "not made yet"
    others = {name: cost["ratio"] for name, cost in found["train_step"].items() if not is_ours(name)}
    best = sorted(others, key=lambda name: others[name])[:2]
    passes = sorted(cost["ratio"] for name, cost in found["predict"].items() if not is_ours(name))
    steps = " and ".join(f"{others[name]:.2f} ({name})" for name in best)
    return f"steps of {steps} at best, predictions of {passes[0]:.1f} to {passes[-1]:.1f}"


def _plain_products(records: Records, mode: str) -> str:
    """The plain network by our products, against torch's."""
    steps = records.get("train_step", {}).get("steps", {}).get(mode, {})
    return f"{steps[OUR_PRODUCTS]['ratio']:.2f}" if OUR_PRODUCTS in steps else "not made yet"


def _against_our_products(records: Records, mode: str) -> str:
    """Steps against the plain network by the same products."""
    steps = records.get("train_step", {}).get("steps", {}).get(mode, {})
    if OUR_PRODUCTS not in steps:
        return "not made yet"
    found = {name: steps[name]["ratio"] / steps[OUR_PRODUCTS]["ratio"] for name in ESTIMATOR if name in steps}
    return ", ".join(f"{ESTIMATOR[name]} {value:.2f}" for name, value in found.items())


def is_ours(name: str) -> bool:
    """Whether a row of the record of other libraries is one of our networks, or the plain one."""
    return name in ESTIMATOR or name in ("ard", "deterministic")


def cost_of(records: Records, name: str, mode: str, network: str) -> dict[str, float] | None:
    """A network's time, and the plain one's that it is compared with: on the CPU of its mode, on CUDA the eager one."""
    if name == "train_step":
        steps = records.get(name, {}).get("steps", {}).get(mode, {})
        cost, plain = steps.get(network), steps.get("deterministic")
    else:
        steps = records.get("modes_in_turns_cuda", {}).get("steps", {}) if name in records else {}
        cost, plain = steps.get(f"{network}, {mode}"), steps.get("deterministic, eager")
    return None if cost is None or plain is None else cost | {"plain": plain["seconds"]}


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
        if count not in ("1", "32"):  # what lies between is in the table of predictions
            continue
        for loop in (key for key in times if key.startswith("loop")):
            faster = times[loop]["ratio"] / times["predict"]["ratio"]
            least = times[loop]["seconds"] / predict_work(sizes, int(count), samples).seconds(speeds)
            told = f"10x, {'met' if faster >= 10 else 'not met'}"
            work = f"CPU predict T={samples}, {images_of(count)}, {name}, faster than a {loop}"
            rows.append([work, f"{faster:.1f}x", told, "1x", f"{least:.0f}x", f"{least / faster:.2f}"])
    return rows
