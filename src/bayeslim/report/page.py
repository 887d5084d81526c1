"""The page: one HTML file that needs nothing else, not even a network connection."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from bayeslim.analysis.figures.pictures import png_address
from bayeslim.checks.packages import check_installed
from bayeslim.checks.text import visible
from bayeslim.report import words
from bayeslim.report.content import Content, Pruning
from bayeslim.report.drawing import draw_figures
from bayeslim.report.inline_svg import inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["page"]


def page(content: Content) -> str:
    """Render a report as HTML; the same content gives the same text.

    All strings are escaped by the template. The numbers of the slider are JSON in which no character can end the
    element they stand in, and the page's security policy runs no script but its own.

    Args:
        content: what it says.

    Example:
        >>> Path("report.html").write_text(page(collect(model, train, test)))
    """
    script, drawn, steps = _asset("page.js"), draw_figures(content, apart=True), words.slider_steps(content)
    charts = {name: _inline(name, drawn.get(name, [])) for name in LABELS}
    places = _places(drawn["pruning_curve"][0], content.pruning) if content.pruning else []
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        content=content,
        style=_asset("style.css"),
        script=script,
        script_hash=f"sha256-{digest}",
        cards=words.cards(content),
        summary=words.summary(content),
        scores=words.score_rows(content),
        slider_rows=_slider_rows(content),
        words=words,
        charts=charts,
        steps=steps,
        slider=embedded_json([{"x": x, "show": step} for x, step in zip(places, steps, strict=True)]),
        galleries=_galleries(content),
    )


def embedded_json(value: Any) -> str:
    r"""JSON that can stand inside a script element: no `<`, `>`, `&` or line separators.

    Example:
        >>> embedded_json("</script>")
        '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, allow_nan=False, sort_keys=True)  # ASCII: other characters are escaped already
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


SIZES = {
    **dict.fromkeys(("pruning_curve", "band", "sparsity"), (7.8, 2.6)),
    **dict.fromkeys(("spectra", "deviations"), (2.5, 2.0)),
    "boundaries": (2.5, 2.6),
}
"""Width and height in inches of figures that take the whole page or a third of it; the others take half of it."""
LABELS = {
    "training": "Curves of training over the epochs",
    "sparsity": "Noise weights per layer over the epochs",
    "pruning_curve": "The score against the number of weights left",
    "pruning_bars": "Not pruned, noise pruned, pruned at random",
    "spectra": "Spectrum of a layer",
    "deviations": "Standard deviations of a layer",
    "reliability": "Reliability diagram",
    "entropies": "Histograms of doubt",
    "draws": "Test error against the number of draws",
    "band": "Prediction over the input",
    "observed": "Predicted against observed",
    "coverage": "Coverage of intervals",
    "boundaries": "Decisions over two inputs",
}
"""What every figure shows, for readers who do not see it."""


def _inline(name: str, figures: list[Figure]) -> list[str]:
    size = SIZES.get(name, (3.8, 2.5))
    return [inline_svg(figure, LABELS[name], size, f"{name}{place}") for place, figure in enumerate(figures)]


def _places(figure: Figure, pruning: Pruning) -> list[float]:
    """How far right of the chosen point every point of a drawn pruning curve is."""
    places = figure.axes[0].transData.transform([(value, 1.0) for value in pruning.fewer])[:, 0] * 72 / figure.dpi
    return [round(place - places[pruning.chosen], 2) for place in places.tolist()]


def _galleries(content: Content) -> list[tuple[str, list[tuple[Any, str]]]]:
    groups = (("Most certain", content.certain), ("Least certain", content.doubtful))
    return [
        (
            title,
            [(example, png_address(example.picture) if example.picture is not None else "") for example in examples],
        )
        for title, examples in groups
        if examples
    ]


def _slider_rows(content: Content) -> list[tuple[str, str]]:
    """What the numbers beside the slider are called: (key, label)."""
    if content.pruning is None:
        return []
    names = [name for name in ("accuracy", "ece", "rmse", "coverage95", "nll") if name in content.pruning.unpruned]
    rows = [("sparsity", "weights removed"), ("weights", "weights left"), ("bytes", "size at 32 bits each")]
    return rows + [(name, words.SCORES[name][0].lower() if name != "rmse" else "RMSE") for name in names]


@cache
def _template() -> Any:
    check_installed("jinja2", "the page of a report needs jinja2", "report")
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # what is marked safe stays
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(_asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("bayeslim.report").joinpath("assets", name).read_text(encoding="utf-8")
