"""Figures of matplotlib as SVG inside a page, coloured by the page's style sheet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from bayeslim.analysis.figures.pictures import PALETTE
from bayeslim.analysis.figures.style import GREY, RULE, TIP, rendered
from bayeslim.checks.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["inline_svg"]

CURSOR = "cursor"
"""The id of what the page's script moves."""
INKS = {"#000000": "soft", GREY: "soft", "#ffffff": "paper", RULE: "rule"}
VARIABLES = {colour.lower(): f"c{place}" for place, colour in enumerate(PALETTE)} | {
    colour.lower(): name for colour, name in INKS.items()
}
"""Colour of a figure -> variable of the style sheet."""
_COLOUR = re.compile("|".join(VARIABLES))
_NAMESPACE = re.compile(r"\{[^}]*\}")


def inline_svg(figure: Figure, label: str, size: tuple[float, float], key: str) -> str:
    """A figure as an `<svg>` element.

    Colours become variables of the style sheet, so that they follow its light and dark schemes. What a figure labels as
    a tip, and its lines, say their text where they are pointed at.

    Args:
        figure: of `bayeslim.analysis.figures`; it is resized.
        label: what it shows, for readers who do not see it.
        size: width and height in inches, at eight points a line of text.
        key: begins the ids inside, which are unique on a page if the keys are.

    Example:
        >>> inline_svg(reliability([0.8], [0.75], [10]), "reliability diagram", (4.2, 2.8), "reliability")[:13]
        '<svg viewBox='
    """
    figure.set_size_inches(*size)
    tips: dict[str, str] = {}
    for artist in figure.findobj(lambda artist: artist.get_gid() is None):
        text = str(artist.get_label())
        is_line = not text.startswith("_") and type(artist).__name__ == "Line2D"
        if text.startswith(TIP) or (is_line and text):
            artist.set_gid(f"tip{len(tips)}")
            tips[f"tip{len(tips)}"] = text.removeprefix(TIP).replace(r"\$", "$")
    svg = ElementTree.fromstring(rendered(figure, "svg", transparent=True))
    _cleaned(svg, tips)
    wanted = {match for element in svg.iter() for value in element.attrib.values() for match in _targets(value)}
    for element in svg.iter():
        for name, value in list(element.attrib.items()):
            if name == "id" and value not in wanted | {CURSOR}:
                del element.attrib[name]
            elif name == "id" and value in wanted:
                element.set(name, f"{key}-{value}")
            else:
                element.set(name, re.sub(r"(url\(#|^#)", rf"\g<1>{key}-", value))
    svg.attrib = {"viewBox": svg.attrib["viewBox"], "role": "img", "aria-label": visible(label)}
    return ElementTree.tostring(svg, encoding="unicode")


def _targets(value: str) -> list[str]:
    """The ids that an attribute refers to."""
    return re.findall(r"url\(#([^)]+)\)", value) + ([value[1:]] if value.startswith("#") else [])


def _cleaned(svg: ElementTree.Element, tips: dict[str, str]) -> None:
    """Drop namespaces, metadata and style sheets; set colours and tips."""
    for element in list(svg.iter()):
        element.tag = _NAMESPACE.sub("", element.tag)
        for name, value in list(element.attrib.items()):
            del element.attrib[name]
            plain = _NAMESPACE.sub("", name)
            if plain == "style":
                value = _COLOUR.sub(lambda found: f"var(--{VARIABLES[found[0]]})", value)
                value = re.sub(r"font: ([\d.]+px) [^;]*", r"font-size: \1", value)
            element.set(plain, "".join(value.split()) if value.startswith("data:") else value)
        for child in [child for child in element if _NAMESPACE.sub("", child.tag) in ("metadata", "style")]:
            element.remove(child)
        if (tip := tips.get(element.get("id", ""))) is not None:
            title = ElementTree.Element("title")
            title.text = visible(tip)
            element.insert(0, title)
