"""The help of experiments and of the demonstration shows the commands that a user types."""

import re

import pytest

from bayeslim.cli import demo
from bayeslim_papers.reproduce import EXPERIMENTS, main_of


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_called_by_its_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main_of(name)(["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0 and shown.startswith(f"usage: bayeslim reproduce {name} ")
    assert set(re.findall(r"bayeslim reproduce (\S+)", shown)) == {name}
    assert "__main__" not in shown
    modules = re.findall(r"python -m\s+(bayeslim\S*)", shown)
    assert set(modules) <= {"bayeslim_papers.images.imagenet`"}, "which has no command of its own"


def test_the_demonstration_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: bayeslim demo ") and "python -m" not in shown
