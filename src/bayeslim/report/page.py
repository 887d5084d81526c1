"""The page: one HTML file that needs nothing else, not even a network connection."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import Any

from bayeslim.plain_text import visible
from bayeslim.report import charts, words
from bayeslim.report.content import Content
from bayeslim.report.pictures import png_address, ramp

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
    script = _asset("page.js")
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
        **_charts(content),
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


def _charts(content: Content) -> dict[str, Any]:
    """Every chart that applies, by the name the template knows it by; the others are empty."""
    score = content.headline
    pruning_chart, places = charts.pruning_chart(content.pruning, score) if content.pruning else ("", [])
    steps = words.slider_steps(content)
    return {
        "training": charts.training(content.training) if content.training else [],
        "sparsity": charts.sparsity(content.training) if content.training and content.training.sparsity else "",
        "pruning_chart": pruning_chart,
        "pruning_bars": charts.pruning_bars(content.pruning, score) if content.pruning else "",
        "steps": steps,
        "slider": embedded_json([{"x": x, "show": step} for x, step in zip(places, steps, strict=True)]),
        "reliability": charts.reliability(content.reliability) if content.reliability else "",
        "entropies": charts.entropies(content.entropies) if content.entropies else "",
        "band": charts.band(content.band, content.features[0], content.target) if content.band else "",
        "observed": charts.observed(content.observed, content.target) if content.observed else "",
        "coverage": charts.coverage(content.coverage) if content.coverage else "",
        "boundary": charts.boundary(content.boundary, content.features) if content.boundary else [],
        "draws": charts.draws(content.draws) if content.draws else "",
        "galleries": _galleries(content),
        "layers": [
            (
                name,
                charts.spectrum(name, layer),
                png_address(ramp(layer.deviations / max(layer.deviations.max(), 1e-30))),
            )
            for name, layer in list(content.layers.items())[:MOST_LAYERS]
        ],
    }


MOST_LAYERS = 12
"""Layers whose posteriors are drawn."""


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
