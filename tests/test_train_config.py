"""Settings of a run survive their file, and a wrong file is explained."""

import inspect
import re
import tomllib
from pathlib import Path

import pytest

import bayeslim as bl
from bayeslim.named_models import MODELS
from bayeslim.schedules import Progress, warmup_linear
from bayeslim.train_config import TrainConfig, kl_epochs, read_config, rows_per_step, to_toml

SETTINGS = [
    TrainConfig(),
    TrainConfig(
        data='a "quoted" \\ path\n\t\x7f\x01 \u00e9 \U0001f600 # = [x].csv',
        target="it's",
        task="regression",
        impute=True,
        rows=7,
        hidden=(),
        lr=1e-05,
        kl_weight=1e16,
        seed=2**62,
    ),
    TrainConfig(hidden=(3,), lr=0.1 + 0.2, kl_weight=5e-324, kl_ramp=0),
]


@pytest.mark.parametrize("config", SETTINGS)
def test_round_trip(tmp_path: Path, config: TrainConfig) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(to_toml(config))
    assert read_config(file) == config
    assert tomllib.loads(file.read_text())["seed"] == config.seed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = ", "is not valid TOML"),
        ("epoch = 3", "unknown setting 'epoch'; did you mean epochs?"),
        ('epochs = "3"', "epochs must be int, got '3'"),
        ("epochs = true", "epochs must be int, got 'True'"),
        ("impute = 1", "impute must be bool, got '1'"),
        ('task = "class"', "task must be one of auto, classes, regression, got 'class'"),
        ('hidden = ["a"]', "hidden must be a list of whole numbers"),
        ("epochs = 0", "--epochs must be at least 1, got 0"),
        ("lr = -1", "--lr must be a positive number, got -1.0"),
        ("lr = nan", "--lr must be a positive number"),
        ("hidden = [0]", "--hidden must be positive"),
        ("rows = 0", "--rows must be at least 1"),
        ("task = 'auto\", \"classes'", "task must be one of auto"),  # the two names, with what stands between them
        (f"lr = 1{'0' * 400}", "lr must be float"),
        (f"epochs = 1{'0' * 30}", "epochs must be int"),
        (f"epochs = 1{'0' * 5000}", "is not valid TOML"),
        (f"hidden = {'[' * 5000}{']' * 5000}", "is not valid TOML"),
        (f"#{'x' * 2**20}", "it is something else"),
        ("data = 2020-01-01", "data must be str"),
    ],
)
def test_wrong_settings_are_explained(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_config(file)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_config(tmp_path / "absent.toml")


def test_the_last_epoch_has_the_whole_kl() -> None:
    for epochs in range(1, 120):
        for given in ((None, None), (epochs // 2, None), (None, epochs // 2)):
            warmup, ramp = kl_epochs(TrainConfig(epochs=epochs, kl_warmup=given[0], kl_ramp=given[1]))
            betas = [warmup_linear(warmup, ramp, 0.3)(Progress(epoch, 1, epochs)) for epoch in range(epochs)]
            assert betas[-1] == 0.3
            assert given[0] in (None, warmup) and given[1] in (None, ramp) and warmup >= 0 <= ramp
            if given == (None, None):
                assert (warmup, ramp) == (5, 50) if epochs > 55 else warmup + ramp == epochs - 1
                assert abs(warmup - ramp / 10) < 1.1


def test_given_epochs_of_the_kl_stay_as_they_are() -> None:
    assert kl_epochs(TrainConfig(epochs=20, kl_warmup=5, kl_ramp=50)) == (5, 50)
    assert kl_epochs(TrainConfig(epochs=20, kl_ramp=50)) == (0, 50)
    assert kl_epochs(TrainConfig(epochs=20, kl_warmup=30)) == (30, 0)


def test_whole_numbers_stand_for_floats(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("lr = 1")
    assert type(read_config(file).lr) is float


def test_help_names_every_model_and_method() -> None:
    text = inspect.getsource(TrainConfig)  # the help is the text under the fields
    for name in (*MODELS, *bl.METHODS):
        assert re.search(rf"\b{re.escape(name)}\b", text), name


def test_small_data_get_smaller_batches() -> None:
    """Iris needs more than the two steps per epoch that batches of 64 are."""
    assert [rows_per_step(TrainConfig(), rows) for rows in (1, 14, 105, 1023, 1024, 60_000)] == [4, 4, 6, 63, 64, 64]
    assert rows_per_step(TrainConfig(batch_size=200), 14) == 200
