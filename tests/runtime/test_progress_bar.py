import pytest

from bayeslim.runtime.progress_bar import epoch_bar, progress_bar


def test_a_terminal_shows_what_is_done_and_how_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    with progress_bar("[red]x.gz", 10, lambda done, speed: f"{done} things") as advance:
        advance(3)
        advance()
    assert "[red]x.gz" in (shown := capsys.readouterr().err)  # text, not markup
    assert "4 things" in shown
    with epoch_bar(3, steps=2, show=True, done=1) as advance:
        for _ in range(4):
            advance()
    assert "epoch 3/3" in capsys.readouterr().err


def test_other_outputs_and_who_wants_none_get_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress_bar("work", None) as advance:
        advance()
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("work", 1, show=False) as advance:
        advance()
    assert capsys.readouterr() == ("", "")
