"""A small chart kit: axes and marks as inline SVG, coloured by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bayeslim.plain_text import visible
from bayeslim.report.units import number

__all__ = ["Chart", "ticks"]

LEFT, RIGHT, TOP, BOTTOM = 54, 16, 30, 46
"""Margins in pixels."""


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers in [low, high], at most `most` of them, in steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> ticks(0.0, 1.0)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = high - low
    if not 0 < span < math.inf:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * part for part in (1, 2, 5, 10, 20) if span / (power * part) <= most - 0.999999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


class Chart:
    """Marks on two axes.

    Args:
        label: what the chart shows, for readers who do not see it.
        x: range of the horizontal axis.
        y: range of the vertical axis.
        x_label: below it.
        y_label: above the vertical axis.
        size: (width, height) in pixels; the page scales it.
        log_x: whether the horizontal axis is logarithmic.
        percent: which axes ("x", "y", "xy") show parts as percentages.

    Example:
        >>> chart = Chart("loss", (1, 10), (0, 2), "epoch", "loss")
        >>> chart.line([1, 10], [2, 1], 0)
        >>> markup = chart.markup()
    """

    def __init__(
        self,
        label: str,
        x: tuple[float, float],
        y: tuple[float, float],
        x_label: str,
        y_label: str,
        size: tuple[int, int] = (520, 300),
        log_x: bool = False,
        percent: str = "",
    ) -> None:
        self.label, self.x_range, self.y_range = label, _widened(x), _widened(y)
        self.x_label, self.y_label = x_label, y_label
        self.size, self.log_x, self.percent = size, log_x, percent
        self.x_ticks: Sequence[tuple[float, str]] | None = None
        self.marks: list[str] = []

    def px(self, value: float) -> float:
        """Horizontal place of a value."""
        low, high = self.x_range
        if self.log_x:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return round(LEFT + (value - low) / (high - low) * (self.size[0] - LEFT - RIGHT), 2)

    def py(self, value: float) -> float:
        """Vertical place of a value."""
        low, high = self.y_range
        return round(self.size[1] - BOTTOM - (value - low) / (high - low) * (self.size[1] - TOP - BOTTOM), 2)

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: int, style: str = "", tip: str = "") -> None:
        """Join points, in a colour of the palette; `style` names further classes such as "dashed" or "thin"."""
        pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]
        path = " ".join(f"{self.px(x)},{self.py(y)}" for x, y in pairs)
        if len(pairs) == 1:
            self.dots([pairs[0][0]], [pairs[0][1]], colour)
        elif pairs:
            self.marks.append(f'<polyline class="line c{colour} {style}" points="{path}">{_tip(tip)}</polyline>')

    def area(
        self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], colour: int, style: str = ""
    ) -> None:
        """Fill between two lines."""
        there = [f"{self.px(x)},{self.py(y)}" for x, y in zip(xs, high, strict=True)]
        back = [f"{self.px(x)},{self.py(y)}" for x, y in zip(xs, low, strict=True)][::-1]
        self.marks.append(f'<polygon class="area f{colour} {style}" points="{" ".join(there + back)}"/>')

    def dots(
        self, xs: Sequence[float], ys: Sequence[float], colour: int, tips: Sequence[str] = (), radius: float = 3.5
    ) -> None:
        """A disc at every point, with a text that shows when pointed at."""
        for index, (x, y) in enumerate(zip(xs, ys, strict=True)):
            tip = _tip(tips[index]) if tips else ""
            place = f'cx="{self.px(x)}" cy="{self.py(y)}" r="{radius}"'
            self.marks.append(f'<circle class="dot f{colour}" {place}>{tip}</circle>')

    def box(self, x: tuple[float, float], y: tuple[float, float], colour: int, tip: str = "", style: str = "") -> None:
        """A filled rectangle."""
        left, right, top, bottom = self.px(x[0]), self.px(x[1]), self.py(y[1]), self.py(y[0])
        size = f'width="{round(max(right - left, 0.5), 2)}" height="{round(max(bottom - top, 0), 2)}"'
        self.marks.append(f'<rect class="bar f{colour} {style}" x="{left}" y="{top}" {size}>{_tip(tip)}</rect>')

    def segment(self, start: tuple[float, float], end: tuple[float, float], style: str, name: str = "") -> None:
        """A straight line: "guide" is grey, "whisker" thin; `name` is an id for the script."""
        places = f'x1="{self.px(start[0])}" y1="{self.py(start[1])}" x2="{self.px(end[0])}" y2="{self.py(end[1])}"'
        self.marks.append(f'<line class="{style}" {f"""id="{name}" """ if name else ""}{places}/>')

    def image(self, address: str) -> None:
        """A picture over the whole plane of the axes."""
        width, height = self.size[0] - LEFT - RIGHT, self.size[1] - TOP - BOTTOM
        place = f'x="{LEFT}" y="{TOP}" width="{width}" height="{height}" preserveAspectRatio="none"'
        self.marks.append(f'<image {place} href="{address}"/>')

    def markup(self) -> str:
        """The chart as SVG."""
        width, height = self.size
        return (
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{_text(self.label)}">'
            f'{self._axes()}<g class="marks">{"".join(self.marks)}</g></svg>'
        )

    def _axes(self) -> str:
        width, height = self.size
        middle = (LEFT + width - RIGHT) / 2
        found = []
        for value in ticks(*self.y_range):
            place = self.py(value)
            found.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{place}" y2="{place}"/>')
            found.append(
                f'<text class="tick" x="{LEFT - 8}" y="{place + 4}" text-anchor="end">{self._shown(value, "y")}</text>'
            )
        horizontal = self.x_ticks or [(value, self._shown(value, "x")) for value in self._x_values()]
        for value, text in horizontal:
            place = f'x="{self.px(value)}" y="{height - BOTTOM + 18}"'
            found.append(f'<text class="tick" {place} text-anchor="middle">{_text(text)}</text>')
        base = height - BOTTOM
        found.append(f'<line class="axis" x1="{LEFT}" x2="{width - RIGHT}" y1="{base}" y2="{base}"/>')
        found.append(
            f'<text class="name" x="{middle}" y="{height - 6}" text-anchor="middle">{_text(self.x_label)}</text>'
        )
        found.append(f'<text class="name" x="0" y="12">{_text(self.y_label)}</text>')
        return "".join(found)

    def _x_values(self) -> list[float]:
        low, high = self.x_range
        if not self.log_x:
            return ticks(low, high, 7 if self.size[0] > 400 else 5)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        parts = (1, 2, 5) if high / low < 1000 else (1,)
        return [part * 10.0**power for power in powers for part in parts if low <= part * 10.0**power <= high]

    def _shown(self, value: float, axis: str) -> str:
        if axis in self.percent:
            return f"{round(100 * value, 6):g} %"
        return number(value)


def _text(text: str) -> str:
    return escape(visible(text))


def _tip(text: str) -> str:
    return f"<title>{_text(text)}</title>" if text else ""


def _widened(values: tuple[float, float]) -> tuple[float, float]:
    """A range that is not a point."""
    low, high = values
    if not (math.isfinite(low) and math.isfinite(high)):
        return (0.0, 1.0)
    if high > low:
        return (low, high)
    half = 0.5 * abs(low) or 0.5
    return (low - half, high + half)
