"""What a report says in plain words."""

from __future__ import annotations

import math

from bayeslim.report.content import Content

__all__ = ["cards", "kibibytes", "number", "percent", "score_rows", "slider_steps", "summary"]

SCORES = {
    "accuracy": ("Accuracy", "part of the answers that are right; higher is better"),
    "rmse": ("RMSE", "typical size of an error, in the unit of the target; lower is better"),
    "nll": ("Negative log-likelihood", "surprise at the true answers, in nats; lower is better"),
    "ece": ("Calibration error", "average gap between stated confidence and how often it is right; 0 is perfect"),
    "brier": ("Brier score", "squared error of the stated probabilities; lower is better"),
    "coverage95": ("Coverage", "part of the true values inside the 95 % intervals; 95 % is perfect"),
}
PARTS = ("accuracy", "ece", "coverage95")


def number(value: float) -> str:
    """A number as people read it: large and whole ones with separators, others with four figures.

    Example:
        >>> number(0.123456), number(42.0)
        ('0.1235', '42')
    """
    if not math.isfinite(value):
        return "\N{EN DASH}"
    if abs(value) < 1e4:
        shown = f"{value:.4g}".replace("e-0", "e-")
    elif abs(value) < 1e9:
        shown = f"{round(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    else:
        shown = f"{value:.3g}".replace("e+0", "e").replace("e+", "e")
    return shown.replace("-", "\N{MINUS SIGN}")


def percent(part: float, digits: int = 1) -> str:
    r"""A part as a percentage.

    Example:
        >>> percent(0.5)
        '50.0\xa0%'
    """
    return f"{100 * part:.{digits}f}\N{NO-BREAK SPACE}%"


def kibibytes(size: float) -> str:
    """Bytes in KiB or MiB."""
    return f"{size / 1024:.1f} KiB" if size < 1024**2 else f"{size / 1024**2:.2f} MiB"


def score_rows(content: Content) -> list[tuple[str, str, str, str]]:
    """Name, value, value after pruning, and meaning of every test score."""
    pruned = content.pruning.test if content.pruning else {}
    rows = []
    for name, value in content.scores.items():
        title, meaning = SCORES.get(name, (name, ""))
        after = _shown(name, pruned[name]) if name in pruned else "\N{EN DASH}"
        rows.append((title, _shown(name, value), after, meaning))
    return rows


def cards(content: Content) -> list[tuple[str, str]]:
    """The three or four numbers at the top: value and label."""
    scores = content.scores
    found: list[tuple[str, str]] = []
    if content.task == "classes":
        found.append((percent(scores["accuracy"]), "of the test examples right"))
        if "ece" in scores:
            found.append((f"{100 * scores['ece']:.1f} points", "between stated and actual confidence"))
    else:
        found.append((number(scores["rmse"]), f"typical error of {content.target}"))
        found.append((percent(scores["coverage95"]), "of the values inside their 95\N{NO-BREAK SPACE}% interval"))
    if content.pruning:
        point = content.pruning.points[content.pruning.chosen]
        found.append((percent(point.sparsity), "of the weights can go"))
        if point.weights:
            found.append(
                (f"{content.pruning.weights / point.weights:.1f}\N{MULTIPLICATION SIGN}", "fewer weights after pruning")
            )
    return found


def summary(content: Content) -> list[str]:
    """A few sentences for somebody who has never heard of a Bayesian network."""
    said = [_quality(content), _honesty(content)]
    if content.pruning:
        said.append(_size(content))
    elif content.sparsity is not None:
        said.append("How many of its weights can be removed could not be measured.")
    return [sentence for sentence in said if sentence]


def _quality(content: Content) -> str:
    trained, tested = (number(content.examples[name]) for name in ("train", "test"))
    start = f"The network learned from {trained} examples and was judged on {tested} others that it had never seen. "
    if content.task == "classes":
        return f"{start}It gave the right answer for {percent(content.scores['accuracy'])} of them."
    return f"{start}Its predictions of {content.target} are typically off by {number(content.scores['rmse'])}."


def _honesty(content: Content) -> str:
    if content.task == "regression":
        inside = content.scores["coverage95"]
        verdict = "as it should be" if abs(inside - 0.95) <= 0.03 else (
            "so its intervals are too narrow: it is surer than it should be"
            if inside < 0.95
            else "so its intervals are wider than they need to be"
        )  # fmt: skip
        start = "It gives an interval with every prediction. Of its 95\N{NO-BREAK SPACE}% intervals"
        return f"{start} {percent(inside)} hold the true value, {verdict}."
    if content.reliability is None or "ece" not in content.scores:
        return ""
    total = sum(content.reliability.count)
    pairs = zip(content.reliability.confidence, content.reliability.count, strict=True)
    stated = sum(confidence * count for confidence, count in pairs) / total
    gap = content.scores["ece"]
    verdict = "can be taken at its word" if gap <= 0.03 else "is roughly honest" if gap <= 0.08 else (
        "claims more than it knows" if stated > content.scores["accuracy"] else "knows more than it claims"
    )  # fmt: skip
    return (
        f"It says how sure it is of each answer: on average {percent(stated)}. Stated and actual rates of success "
        f"differ by {100 * gap:.1f} percentage points on average, so it {verdict}."
    )


def _size(content: Content) -> str:
    assert content.pruning is not None
    pruning, point = content.pruning, content.pruning.points[content.pruning.chosen]
    name = content.headline
    shown = percent if name == "accuracy" else number
    before, after = shown(content.scores[name]), shown(pruning.test[name])
    change = f"stays at {after}" if before == after else f"is {after} instead of {before}"
    return (
        f"{percent(point.sparsity)} of its {number(pruning.weights)} weights are noise and can be removed. "
        f"Without them {number(point.weights)} are left, and on the test examples the "
        f"{'accuracy' if name == 'accuracy' else 'typical error'} {change}."
    )


def slider_steps(content: Content) -> list[dict[str, str]]:
    """What the page shows for every position of the pruning slider."""
    pruning = content.pruning
    if pruning is None:
        return []
    steps = []
    for point in pruning.points:
        step = {
            "threshold": f"{point.threshold:.2f}".replace("-", "\N{MINUS SIGN}"),
            "sparsity": percent(point.sparsity),
            "weights": number(point.weights),
            "bytes": kibibytes(point.bytes),
        }
        for name, value in point.scores.items():
            step[name] = _shown(name, value)
            step[f"random-{name}"] = _shown(name, point.random[name]) if name in point.random else "\N{EN DASH}"
        steps.append(step)
    return steps


def _shown(name: str, value: float) -> str:
    return percent(value) if name in PARTS else f"{value:.3f}" if abs(value) < 100 else number(value)
