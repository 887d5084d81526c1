"""docs/results.md from the records in results/: tables, the papers' numbers and what we make of them.

    bayeslim reproduce report

Nothing is trained. `registry` lists every record with its command, its table and its notes; the notes of an experiment
are text in the module of its name, with figures computed from the record, so that they cannot go stale. A record that
is not there is named at the end of the page with the command that measures it.

A new experiment: one entry in `registry.SECTIONS`, and its notes in a module here once there is something to say.
"""

from bayeslim.experiments.results_page.page import main, page, read
from bayeslim.experiments.results_page.registry import SECTIONS, Entry, Section

__all__ = ["SECTIONS", "Entry", "Section", "main", "page", "read"]
