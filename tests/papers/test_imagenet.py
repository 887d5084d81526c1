"""The recipes for ImageNet: its images as arrays in files, and both experiments at a small size on made-up images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayeslim.models import resnet50, vit_s16
from bayeslim_papers import experiment
from bayeslim_papers.images import imagenet
from bayeslim_papers.images.imagenet import load_imagenet, prepare_imagenet
from bayeslim_papers.samplers.cifar_table import table
from bayeslim_papers.samplers.imagenet import SamplersImagenet
from bayeslim_papers.vdp import imagenet as vdp_imagenet
from bayeslim_papers.vdp.imagenet import VdpImagenet

COLOURS = {"n01": (250, 10, 10), "n02": (10, 10, 250)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two classes, two images of each to train on and one to test, wider than high."""
    image = pytest.importorskip("PIL.Image")
    for part, count in (("train", 2), ("val", 1)):
        for name, colour in COLOURS.items():
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                image.new("RGB", (300, 260), colour).save(folder / f"{number}.png")
    return tmp_path


def test_images_become_arrays_that_are_read_piece_by_piece(source: Path, tmp_path: Path) -> None:
    prepare_imagenet(source, tmp_path / "data")
    train, test = load_imagenet(tmp_path / "data", "cpu")
    assert train.pixels.shape == (4, 256, 256, 3) and train.labels.tolist() == [0, 0, 1, 1]
    assert test.labels.tolist() == [0, 1] and train.mirrored and not test.mirrored
    x, y = train.varied(torch.tensor([3, 0]))
    assert x.shape == (2, 3, 224, 224) and y.tolist() == [1, 0]
    assert test.plain()[0].shape == (2, 3, 224, 224)
    centre, spread = (torch.tensor(values) for values in imagenet.COLOURS)
    blue = (torch.tensor(COLOURS["n02"]) / 255 - centre) / spread
    torch.testing.assert_close(x[0, :, 100, 100], blue)
    torch.testing.assert_close(test.plain()[0][1, :, 0, 0], blue)


def test_a_class_without_training_images_and_empty_parts_are_refused(source: Path, tmp_path: Path) -> None:
    (source / "val" / "n02").rename(source / "val" / "n03")
    with pytest.raises(ValueError, match="has the class 'n03', which train/ lacks"):
        prepare_imagenet(source, tmp_path / "data")
    with pytest.raises(FileNotFoundError, match="has no folders with images"):
        prepare_imagenet(source / "val", tmp_path / "data")


def test_what_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="bayeslim_papers.images.imagenet FOLDER --root DATA"):
        load_imagenet(tmp_path, "cpu")


def test_prepared_from_the_command_line(source: Path, tmp_path: Path) -> None:
    imagenet.main([str(source), "--root", str(tmp_path / "data")])
    assert np.load(tmp_path / "data" / "imagenet" / "test-labels.npy").tolist() == [0, 1]


def test_full_size_recipes_have_the_networks_that_they_name() -> None:
    for recipe, known in ((VdpImagenet(), vit_s16()), (SamplersImagenet(), resnet50())):
        shapes = [tuple(parameter.shape) for parameter in recipe.network().parameters()]
        assert shapes == [tuple(parameter.shape) for parameter in known.parameters()]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return experiment.run(*SamplersImagenet.quick("cpu"))


def test_the_samplers_record(record: dict[str, Any]) -> None:
    """The first of two cycles has no snapshots; pruned networks have those of the last cycle anyway."""
    counts = {run["method"]: run["networks"] for run in record["runs"]}
    assert counts == {"cvadam": 2, "dfp-90": 2, "sgd": 1}
    assert all(run["losses"][-1] < run["losses"][0] for run in record["runs"])
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert "the paper has 200 and 4, it does not say the others." in table(record)
    assert "(73.5, channels)" in table(record)


def test_batches_from_files_are_not_replayed_unless_asked_for(tmp_path: Path) -> None:
    """The command line leaves the recipe's own choice alone: a CUDA graph cannot read files."""
    out = tmp_path / "out.json"
    vdp_imagenet.main(["--quick", "--methods", "det", "--out", str(out)])
    assert json.loads(out.read_text())["config"]["graph"] is False
