"""The page parses, stands alone, cannot be broken out of, and repeats."""

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from tests.report.conftest import SAMPLES, Case

from bayeslim.report import Content, Origin, collect, page
from bayeslim.report.page import embedded_json
from bayeslim.report.words import slider_steps

VOID = {"meta", "input", "img", "link", "br", "hr"}
HOSTILE = """</script></title><script>alert(1)</script><img src=x onerror='alert(2)'>"{{ 7 * 7 }}]]>&amp;"""


class Reader(HTMLParser):
    """Elements, attributes and texts of a page; checks that tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def values(self, attribute: str) -> list[str]:
        return [found[attribute] or "" for _, found in self.elements if attribute in found]


@pytest.fixture(scope="module", params=["moons", "curve", "pictures"])
def content(request: pytest.FixtureRequest) -> Content:
    return request.getfixturevalue(request.param).content


@pytest.fixture(scope="module")
def text(content: Content) -> str:
    """The page, whose charts take a second to draw."""
    return page(content)


def hostile(content: Content) -> Content:
    """The same content with every string of the user's replaced by an attack."""
    words = {"truth": HOSTILE, "said": HOSTILE, "bars": [(HOSTILE, 0.5, True)], "cells": [(HOSTILE, HOSTILE)]}
    evil = [dataclasses.replace(example, **words) for example in content.doubtful]
    training = content.training
    assert training is not None and content.pruning is not None
    return dataclasses.replace(
        content,
        title=HOSTILE,
        target=HOSTILE,
        classes=[HOSTILE for _ in content.classes],
        features=[HOSTILE for _ in content.features],
        doubtful=evil,
        training=dataclasses.replace(training, sparsity={HOSTILE: next(iter(training.sparsity.values()))}),
        pruning=dataclasses.replace(content.pruning, criterion=HOSTILE, data=HOSTILE),
        layers={HOSTILE: next(iter(content.layers.values()))},
        origin=Origin(HOSTILE, 7, {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}),
    )


def test_page_is_well_formed(text: str) -> None:
    assert text.startswith("<!doctype html>")
    reader = Reader(text)
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    wanted = {address[1:] for address in reader.values("href") if address.startswith("#")}
    wanted |= set(reader.values("for")) | set(reader.values("aria-labelledby"))
    assert wanted <= set(ids) and "summary" in wanted
    assert all(found.get("alt") for tag, found in reader.elements if tag == "img")
    charts = [found for tag, found in reader.elements if tag == "svg" and found.get("aria-hidden") != "true"]
    assert charts and all(found.get("role") == "img" and found.get("aria-label") for found in charts)
    assert not re.search(r"\b(nan|None|undefined|inf)\b", re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S))


def test_page_stands_alone_and_is_small(text: str) -> None:
    assert len(text.encode()) < 1_500_000
    assert not re.search(
        r"https?:|//[a-z]|@import|url\((?!#)", re.sub(r"data:image/png;base64,[\w+/=]+", "", text).replace("// Two", "")
    )
    reader = Reader(text)
    assert all(address.startswith("data:image/png;") for address in reader.values("src"))
    assert all(address.startswith(("#", "data:image/png;")) for address in reader.values("href"))
    assert "link" not in {tag for tag, _ in reader.elements}


def test_policy_allows_the_pages_own_script_only(text: str) -> None:
    reader = Reader(text)
    policy = next(found["content"] or "" for _, found in reader.elements if "http-equiv" in found)
    script = reader.texts["script"][-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_hostile_names_stay_text(content: Content, text: str) -> None:
    plain, attacked = Reader(text), Reader(page(hostile(content)))
    count = [sum(tag == "script" for tag, _ in reader.elements) for reader in (plain, attacked)]
    assert count == [2, 2]
    assert not [name for _, found in attacked.elements for name in found if name.startswith("on")]
    assert "x" not in attacked.values("src")
    assert attacked.texts["h1"] == [HOSTILE] and attacked.texts["title"][0] == HOSTILE
    assert HOSTILE in attacked.texts["code"] and "49" not in attacked.texts["h1"]
    json.loads(attacked.texts["script"][0])


def test_hostile_names_through_collect(curve: Case) -> None:
    from bayeslim.report import Names

    names = Names(title=HOSTILE, target=HOSTILE, features=(HOSTILE,))
    text = page(collect(curve.model, curve.train, curve.test, names=names, samples=20))
    assert "<script>alert" not in text and "<img src=x" not in text and text.count("<script") == 2


def test_embedded_json_cannot_end_its_element() -> None:
    text = embedded_json({"name": "</script><!--&\u2028"})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"name": "</script><!--&\u2028"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(float("nan"))


def test_slider_has_a_position_for_every_point(content: Content, text: str) -> None:
    reader = Reader(text)
    steps = json.loads(reader.texts["script"][0])
    pruning = content.pruning
    assert pruning is not None and len(steps) == len(pruning.points)
    assert [step["show"] for step in steps] == slider_steps(content)
    assert [step["x"] for step in steps] == sorted(step["x"] for step in steps)
    slider = next(found for tag, found in reader.elements if tag == "input")
    assert (slider["max"], slider["value"]) == (str(len(steps) - 1), str(pruning.chosen))
    keys = set(reader.values("data-show"))
    assert keys <= set(steps[0]["show"]) and {"threshold", "sparsity", "bytes", "nll"} <= keys
    score = "accuracy" if content.task == "classes" else "rmse"
    assert score in keys and steps[pruning.chosen]["show"]["weights"] in reader.texts["dd"]


def test_same_content_gives_the_same_page(content: Content, text: str) -> None:
    assert page(content) == text


def test_same_network_gives_the_same_page(pictures: Case) -> None:
    again = collect(
        pictures.model, pictures.train, pictures.test, history=pictures.history, unfamiliar=pictures.validation[0],
        samples=SAMPLES,
    )  # fmt: skip
    assert page(again) == page(pictures.content)


def test_page_of_a_plain_network_leaves_pruning_out(moons: Case) -> None:
    bare = dataclasses.replace(
        moons.content, pruning=None, training=None, layers={}, costs=[], sparsity=None, draws=None, boundary=None
    )
    reader = Reader(page(bare))
    assert "pruning" not in reader.values("id") and "training" not in reader.values("id")


def test_many_layers_and_one_epoch(moons: Case) -> None:
    layers = {f"block.{index}": next(iter(moons.content.layers.values())) for index in range(30)}
    training = moons.content.training
    assert training is not None
    short = dataclasses.replace(
        training,
        epochs=[1],
        series={name: values[:1] for name, values in training.series.items()},
        sparsity={name: [0.5] for name in layers},
    )
    text = page(dataclasses.replace(moons.content, layers=layers, training=short))
    Reader(text)
    assert len(text.encode()) < 1_500_000 and "One line per layer" in text
