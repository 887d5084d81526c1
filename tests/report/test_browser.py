"""The page in a real browser; skipped where there is none (Debian package `chromium`)."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.report import browser
from tests.report.browser import Browser
from tests.report.conftest import Case
from tests.report.test_page import hostile

from bayeslim.report import page
from bayeslim.report.page import embedded_json
from bayeslim.report.words import slider_steps

NODE = shutil.which("node")
needs_browser = pytest.mark.skipif(browser.FOUND is None, reason="needs a browser: apt-get install chromium")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node")

PAPER = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 28)"
SHOWN = """
Object.fromEntries([...document.querySelectorAll("[data-show]")].map(place => [place.dataset.show, place.textContent]))
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@needs_browser
def test_slider_moves_numbers_and_cursor(window: Browser, moons: Case, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(moons.content))
    window.open(tmp_path / "report.html")
    places: list[float] = []
    for place, step in enumerate(slider_steps(moons.content)):
        window.run(f"threshold.value = {place}; threshold.dispatchEvent(new Event('input'))")
        shown = window.run(SHOWN)
        assert shown == {key: step[key] for key in shown} and {"threshold", "accuracy", "ece", "bytes"} <= shown.keys()
        places.append(window.run("cursor.getBoundingClientRect().x"))
    assert places == sorted(places) and len(set(places)) > 3
    assert window.problems == []


@needs_browser
def test_dark_and_light(window: Browser, moons: Case, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(moons.content))
    for scheme, before, after in (("light", LIGHT, DARK), ("dark", DARK, LIGHT)):
        window.open(tmp_path / "report.html", scheme)
        assert window.run(PAPER) == before
        window.run("theme.click()")
        assert window.run(PAPER) == after
    assert window.problems == []


@needs_browser
@pytest.mark.parametrize("width", [1100, 360])
def test_nothing_sticks_out(width: int, window: Browser, pictures: Case, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(hostile(pictures.content)))
    window.open(tmp_path / "report.html", width=width)
    assert window.run("document.documentElement.scrollWidth") <= width


@needs_browser
def test_hostile_names_run_nothing(window: Browser, moons: Case, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(hostile(moons.content)))
    window.open(tmp_path / "report.html")
    assert window.run("document.scripts.length") == 2
    assert window.problems == []  # a script refused by the policy would be reported


@needs_browser
def test_prints_to_pdf(window: Browser, curve: Case, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(curve.content))
    window.open(tmp_path / "report.html", "dark")
    printed = window.pdf()
    assert printed.startswith(b"%PDF") and len(printed) > 20_000
    window.ask("Emulation.setEmulatedMedia", media="print")
    assert window.run(PAPER) == LIGHT  # paper is white whatever the screen is
    window.ask("Emulation.setEmulatedMedia", media="")


@needs_browser
def test_problems_are_seen(window: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<script>missing()</script>")
    window.open(tmp_path / "bad.html")
    assert any("missing is not defined" in problem for problem in window.problems)
    window.problems.clear()


@needs_node
def test_script_without_a_browser(moons: Case, tmp_path: Path) -> None:
    """The script against the few parts of a document that it uses."""
    script = page(moons.content).rpartition("<script>")[2].partition("</script>")[0]
    steps = [{"x": index, "show": step} for index, step in enumerate(slider_steps(moons.content))]
    stand_in = f"""
      const element = (extra = {{}}) => ({{dataset: {{}}, attributes: {{}}, on: {{}}, ...extra,
        setAttribute(name, value) {{ this.attributes[name] = String(value); }},
        addEventListener(name, act) {{ this.on[name] = act; }} }});
      const parts = {{theme: element(), cursor: element(), threshold: element({{value: "0"}}),
        steps: {{textContent: {json.dumps(embedded_json(steps))}}}}};
      const places = ["threshold", "accuracy"].map(key => element({{dataset: {{show: key}}}}));
      globalThis.matchMedia = () => ({{matches: true}});
      globalThis.document = {{documentElement: element(), getElementById: id => parts[id] ?? null,
        querySelectorAll: () => places}};
    """
    check = """
      const seen = steps.map((_, place) => {
        slider.value = String(place);
        slider.on.input();
        return [...places.map(e => e.textContent), cursor_of()];
      });
      toggle.on.click();
      console.log(JSON.stringify([seen, root.dataset.theme]));
    """.replace("steps.map", "JSON.parse(parts.steps.textContent).map").replace(
        "cursor_of()", "parts.cursor.attributes.transform"
    )
    file = tmp_path / "script.js"
    file.write_text(stand_in + script.replace('"use strict";', "") + check)
    done = subprocess.run([str(NODE), str(file)], capture_output=True, text=True, timeout=60, check=True)
    seen, theme = json.loads(done.stdout)
    assert theme == "light"  # from a dark scheme
    assert seen == [
        [step["show"]["threshold"], step["show"]["accuracy"], f"translate({step['x']} 0)"] for step in steps
    ]
