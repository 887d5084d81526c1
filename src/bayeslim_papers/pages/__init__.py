"""docs/results.md and the pages in docs/results/ from the records in results/; nothing is trained.

    bayeslim reproduce report

Every paper's package has a template `results.md` (jinja2), which holds the text, and a module `results`, which offers
tables and numbers that need some code. In a template

- `{% call(r) entry(record, title, command) %} ... {% endcall %}` is the section of a record `r`; without the record the
  section is left out, and `results.md` of this package's parent names it with its command;
- `by(r, path, key)` holds averages over the runs of every method, see `bayeslim_papers.tables.by`; `value|f(2)` shows
  two digits after the point, `value|f(".3g")` what Python's `format` does.

All figures are computed from the record, so that they cannot go stale. A new experiment is a section of a template.
"""

from bayeslim_papers.pages.page import Entry, main, pages, read

__all__ = ["Entry", "main", "pages", "read"]
