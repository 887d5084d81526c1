# Every target sets up its own .venv first: on a fresh machine `make demo` or `make test` is enough.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test slow lint types check clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(INSTALLED)  ## create .venv with everything the other targets need

demo: $(INSTALLED)  ## train, convert, sparsify and judge a digit classifier; writes demo-report/
	$(BIN)/python -m bayeslim.experiments.demo --out demo-report

test: $(INSTALLED)  ## the test suite without the slow runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 -q

slow: $(INSTALLED)  ## long statistical and end-to-end tests
	$(BIN)/python -m pytest -m slow -q

lint: $(INSTALLED)  ## formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(INSTALLED)  ## static types of the package and its tests
	$(BIN)/basedpyright

.PHONY: docs docs-serve
docs: $(INSTALLED)  ## build the documentation into build/site/; warnings are errors
	$(BIN)/python -m mkdocs build --strict

docs-serve: $(INSTALLED)  ## show the documentation at http://127.0.0.1:8000, rebuilt on every change
	$(BIN)/python -m mkdocs serve

check: lint types test  ## everything CI runs

clean:  ## remove the environment and caches
	rm -rf .venv .pytest_cache .ruff_cache demo-report
