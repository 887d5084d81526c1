"""Names of any kind as text that can be shown."""

import pytest

from bayeslim.checks.text import figure_text, one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),  # a terminal would obey
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("\u202eevil\u202c\u2066", r"\u202eevil\u202c\u2066"),  # turns the text after it around
        ("\udcff\uffff", r"\udcff\uffff"),  # neither stands in XML, the first not in UTF-8
        ("two\nlines", "two\nlines"),
        ("na\u00efve \u0645\u200c\u062f \U0001f600\u00a0\\ $x$ [red] <b>", None),
    ],
)
def test_what_cannot_be_seen_stands_as_an_escape_and_all_else_stays(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)
    visible(text).encode()


def test_one_line_of_bounded_length() -> None:
    assert one_line(" two\n\tlines\u2028\x85here ") == "two lines here"
    assert one_line("x" * 81) == "x" * 79 + "…" and one_line("x" * 80) == "x" * 80
    assert len(one_line("\x1b" * 50, 40)) == 40


def test_figures_show_dollars() -> None:
    assert figure_text("a_b$c$") == r"a_b\$c\$"
