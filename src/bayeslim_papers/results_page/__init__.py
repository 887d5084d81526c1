"""docs/results.md from the records in results/: tables, the papers' numbers and what we make of them.

    bayeslim reproduce report

Nothing is trained. `registry` lists the sections; the module of an experiment's name has its entries, each a record
with its command, its table and its notes: text with figures computed from the record, so that they cannot go stale. A
record that is not there is named at the end of the page with the command that measures it.

A new experiment: its entries in a module here, and a section in `registry.SECTIONS`.
"""

from bayeslim_papers.results_page.page import main, page, read
from bayeslim_papers.results_page.registry import SECTIONS, Entry, Section

__all__ = ["SECTIONS", "Entry", "Section", "main", "page", "read"]
