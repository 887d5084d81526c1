"""Splits, images, texts and data sets by name."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bayeslim.data.image_inputs import ImageInputs, as_images, read_image_files
from bayeslim.data.named import NAMED, load_problem
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.problems import from_images, from_path, from_table, split_rows
from bayeslim.data.tables import Table
from bayeslim.data.text_inputs import TextInputs


def test_splits_are_disjoint_complete_and_seeded() -> None:
    parts = split_rows(100, seed=3)
    assert [len(part) for part in parts] == [70, 15, 15]
    assert sorted(np.concatenate(parts)) == list(range(100))
    np.testing.assert_array_equal(parts[0], split_rows(100, seed=np.int64(3))[0])  # pyright: ignore[reportArgumentType]
    assert list(parts[0]) != list(split_rows(100, seed=4)[0])
    assert [len(part) for part in split_rows(100, seed=0, rows=20)] == [14, 3, 3]
    given = split_rows(100, seed=0, test_rows=np.arange(90, 100))
    assert list(given[2]) == list(range(90, 100)) and max(*given[0], *given[1]) < 90


def test_statistics_come_from_the_training_rows_alone() -> None:
    generator = np.random.default_rng(0)
    table = Table({"a": generator.normal(5, 2, 200), "y": generator.normal(size=200)})
    problem = from_table(table, "y", seed=0)
    for part in problem.splits.train:
        assert part.mean().item() == pytest.approx(0, abs=1e-6)
        assert part.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert abs(problem.splits.test[0].mean().item()) > 1e-3


@pytest.mark.parametrize(
    ("cell", "message"), [("inf", "'inf' is infinite"), ("abc", "'abc' is not a number"), ("3e38", "is too far from")]
)
def test_errors_name_the_row_of_the_table_whatever_part_it_fell_into(cell: str, message: str) -> None:
    parts = split_rows(300, seed=0)
    held_out = parts[1:] if cell == "3e38" else parts
    for rows in (sorted(part.tolist())[:2] for part in held_out):
        areas = [f"{i / 1e4}" for i in range(300)]
        for row in rows:
            areas[row] = cell
        table = Table({"area": areas, "y": [str(i % 2) for i in range(300)]})
        with pytest.raises(ValueError, match=f"column 'area', data row {rows[0] + 1}: .*{message}") as caught:
            from_table(table, "y")
        assert type(caught.value) is ValueError


def test_gaps_in_held_out_rows_are_named_by_the_first_row_of_the_table() -> None:
    rows = sorted(split_rows(300, seed=0)[2].tolist())
    colours = ["red" if i % 3 else "blue" for i in range(300)]
    for row in rows[5:7]:
        colours[row] = ""
    with pytest.raises(ValueError, match=f"'colour' has no value in 2 of 45 rows, first in data row {rows[5] + 1}:"):
        from_table(Table({"colour": colours, "y": [str(i % 2) for i in range(300)]}), "y")


def test_targets_of_images_out_of_reach_are_named_by_their_row() -> None:
    row = int(split_rows(40, seed=0)[1][2])
    labels = [f"{i / 1e4}" for i in range(40)]
    labels[row] = "3e37"
    with pytest.raises(ValueError, match=f"column 'y', data row {row + 1}: '3e37' is too far"):
        from_images(torch.zeros(40, 1, 2, 2), True, labels, "y", "regression", 0, None, "")


def test_few_rows_and_lonely_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="have 1 rows: training needs at least 10"):
        from_table(Table({"a": ["1"], "y": ["2"]}), "y")
    with pytest.raises(ValueError, match="have 0 rows"):
        from_table(Table({"a": [], "y": []}), "y")
    with pytest.raises(ValueError, match="no column besides the target"):
        from_table(Table({"y": ["2", "3"] * 10}), "y")


def test_target_must_be_named(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("a,b\n" + "1,2\n" * 20)
    with pytest.raises(ValueError, match="say which column to predict: pass --target with one of 'a', 'b'"):
        from_path(file, None, None, False, 0, None)
    with pytest.raises(ValueError, match="there is no column 'c': pass --target with one of 'a', 'b'"):
        from_path(file, "c", None, False, 0, None)


def pictures(folder: Path, classes: dict[str, int], count: int = 8) -> Path:
    generator = np.random.default_rng(0)
    for name, level in classes.items():
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = np.clip(level + generator.integers(-20, 20, (6, 5, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def test_folder_of_images(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "set", {"dark": 40, "light": 200})
    problem = from_path(folder, None, None, False, 0, None)
    assert problem.preprocessing.inputs == ImageInputs((3, 6, 5))
    assert problem.preprocessing.target.classes == ("dark", "light")
    x, y = problem.splits.train
    assert x.shape == (12, 3, 6, 5)
    assert bool(((x.mean((1, 2, 3)) > 0.5).long() == y).all())
    prepared = torch.cat(list(problem.preprocessing.prepared(folder / "light")))
    assert prepared.shape == (8, 3, 6, 5) and prepared.min() > 0.5
    assert Preprocessing.from_json(problem.preprocessing.to_json()) == problem.preprocessing


def test_class_folders_keep_their_names(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "set", {"001": 40, "002": 200})
    assert from_path(folder, None, None, False, 0, None).preprocessing.target.classes == ("001", "002")


def test_image_files_are_brought_to_the_shape(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 51, np.uint8)).save(tmp_path / "grey.png")
    read = read_image_files([tmp_path / "grey.png"], (3, 2, 8))
    torch.testing.assert_close(read, torch.full((1, 3, 2, 8), 0.2))
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="broken.png cannot be read as an image"):
        read_image_files([tmp_path / "broken.png"])


def test_images_of_16_bits_keep_their_brightness(tmp_path: Path) -> None:
    levels = (0, 10_000, 30_000, 65_535)
    files = [tmp_path / f"{level}.png" for level in levels]
    for file, level in zip(files, levels, strict=True):
        Image.fromarray(np.full((3, 4), level, np.uint16)).save(file)
    read = read_image_files(files)
    assert read.shape == (4, 1, 3, 4)
    torch.testing.assert_close(read[:, 0, 0, 0], torch.tensor(levels) / 65_535, rtol=0, atol=0.5 / 255)


@pytest.mark.parametrize("grey_first", [True, False])
def test_one_file_with_colour_makes_all_images_colour(tmp_path: Path, grey_first: bool) -> None:
    names = ("a.png", "b.png") if grey_first else ("b.png", "a.png")
    Image.fromarray(np.full((3, 4), 51, np.uint8)).save(tmp_path / names[0])
    Image.fromarray(np.full((3, 4, 3), (255, 0, 102), np.uint8)).save(tmp_path / names[1])
    read = read_image_files([tmp_path / name for name in names])
    torch.testing.assert_close(read[:, :, 0, 0], torch.tensor([[0.2, 0.2, 0.2], [1.0, 0.0, 0.4]]))


def test_grey_images_of_all_kinds_stay_grey(tmp_path: Path) -> None:
    grey = Image.fromarray(np.full((3, 4), 51, np.uint8))
    for mode in ("1", "L", "LA"):
        grey.convert(mode).save(tmp_path / f"{mode}.png")
    assert read_image_files([tmp_path / f"{mode}.png" for mode in ("1", "L", "LA")]).shape == (3, 1, 3, 4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_shows_white(tmp_path: Path, mode: str) -> None:
    alpha = np.zeros((3, 4), np.uint8)
    alpha[0] = 255  # the first row is opaque black, the others transparent black
    image = Image.merge("RGBA", [Image.new("L", (4, 3))] * 3 + [Image.fromarray(alpha)])
    if mode == "P":
        image = Image.fromarray(alpha // 255).convert("P")
        image.save(tmp_path / "x.png", transparency=0)
    else:
        image.convert(mode).save(tmp_path / "x.png")
    read = read_image_files([tmp_path / "x.png"])[0, 0]
    assert bool((read[1:] == 1).all()) and bool((read[0] < 0.1).all())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_may_come_last(channels: int) -> None:
    last = np.random.default_rng(0).integers(0, 256, (5, 8, 9, channels)).astype(np.uint8)
    found, unit = as_images(last)
    assert unit and torch.equal(found, as_images(np.moveaxis(last, -1, 1))[0])
    assert as_images(np.zeros((5, 3, 8, 3)))[0].shape == (5, 3, 8, 3)


def test_folders_without_classes_or_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one" / "only").mkdir(parents=True)
    with pytest.raises(ValueError, match="has 1 sub-folders"):
        from_path(tmp_path / "one", None, None, False, 0, None)
    (tmp_path / "one" / "other").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        from_path(tmp_path / "one", None, None, False, 0, None)


def test_arrays_of_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(40) % 2
    np.savez(tmp_path / "bytes.npz", x=generator.integers(0, 256, (40, 4, 4), dtype=np.uint8), y=y)
    np.savez(tmp_path / "floats.npz", x=generator.normal(3, 2, (40, 1, 4, 4)), y=y)
    unit = from_path(tmp_path / "bytes.npz", None, None, False, 0, None)
    assert unit.preprocessing.inputs == ImageInputs((1, 4, 4)) and unit.splits.train[0].max() <= 1
    scaled = from_path(tmp_path / "floats.npz", None, None, False, 0, None)
    assert scaled.splits.train[0].mean().item() == pytest.approx(0, abs=1e-5)
    x, labels = unit.preprocessing.labelled(tmp_path / "bytes.npz")
    assert x.shape == (40, 1, 4, 4) and labels.tolist() == y.tolist()


def test_wrong_images_are_refused() -> None:
    inputs = ImageInputs((1, 2, 2))
    with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\], got \[0, 255\]"):
        inputs.encode(torch.tensor([[0.0, 1.0, 2.0, 255.0]]))
    with pytest.raises(ValueError, match=r"inputs have shape \(3,\)"):
        inputs.encode(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="needs the columns x0 to x3; missing: x3; not expected: z"):
        inputs.encode_table(Table({"x0": ["0"], "x1": ["0"], "x2": ["0"], "z": ["0"]}))
    table = Table({"x0": ["0"], "x1": ["1"], "x2": ["0.5"], "x3": ["0"]})
    torch.testing.assert_close(inputs.encode_table(table), torch.tensor([[[[0.0, 1.0], [0.5, 0.0]]]]))


def test_texts_are_the_last_words_padded_in_front() -> None:
    inputs = TextInputs.fitted(["To be or not to be", "be"], most_words=2, length=4)
    assert inputs.words == ("be", "to") and inputs.vocabulary == 4
    assert inputs.encode(["be TO", "or to be or be", ""]).tolist() == [[0, 0, 2, 3], [3, 2, 1, 2], [0, 0, 0, 0]]
    assert TextInputs.from_json(inputs.to_json()) == inputs
    with pytest.raises(ValueError, match="needs a column 'text'"):
        inputs.encode_table(Table({"review": ["be"]}))


def test_named_sets_are_seeded_and_bounded() -> None:
    for name in ("digits", "moons", "blundell-curve"):
        problem, again = load_problem(name, seed=1, rows=50), load_problem(name, seed=1, rows=50)
        assert torch.equal(problem.splits.test[0], again.splits.test[0])
        assert sum(len(part[1]) for part in (problem.splits.train, problem.splits.validation)) <= 50
    assert {"mnist", "fashion-mnist", "cifar10", "imdb", "uci/concrete"} <= NAMED.keys()


def test_unknown_names_get_suggestions() -> None:
    with pytest.raises(FileNotFoundError, match=r"'minst.csv' is neither a file or folder nor a known data set: The"):
        load_problem("minst.csv")
    with pytest.raises(FileNotFoundError, match=r"'minst' is neither .* did you mean mnist.*The sets are digits"):
        load_problem("minst")
    with pytest.raises(ValueError, match="moons needs none of them"):
        load_problem("moons", target="y")


@pytest.mark.parametrize("name", ["uci/concrete", "mnist", "imdb"])
@pytest.mark.slow
def test_real_sets(real_data: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("BAYESLIM_DATA", str(real_data))
    splits = load_problem(name, rows=200).splits
    assert [len(part[1]) for part in (splits.train, splits.validation)] == [170, 30]
    assert len(splits.test[1]) in (103, 200) and (name == "uci/concrete" or len(splits.test[1].unique()) > 1)


def test_files_are_read_as_images_of_the_known_kinds_alone(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "x.png", format="TIFF")  # as PostScript, for which Pillow starts a program
    with pytest.raises(ValueError, match=r"x\.png cannot be read as an image \(cannot identify"):
        read_image_files([tmp_path / "x.png"])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse names that are not UTF-8")
def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for index in range(6):
            Image.new("L", (4, 4), index).save(os.fsencode(tmp_path / label) + b"/\xff%d.png" % index)
    assert len(from_path(tmp_path, None, None, False, 0, None).preprocessing.source) == 64
    (tmp_path / "dog").rename(tmp_path / "dog\udcff")
    with pytest.raises(ValueError, match="names a class by characters that cannot be shown: rename the folder"):
        from_path(tmp_path, None, None, False, 0, None)
