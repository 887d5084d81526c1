# Every target sets up its own .venv first: on a fresh machine `make demo` or `make test` is enough.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-cuda slow lint types check clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(INSTALLED)  ## create .venv with everything the other targets need

demo: $(INSTALLED)  ## train, convert, sparsify and judge a digit classifier; writes demo-report/
	$(BIN)/bayeslim demo --out demo-report

test: $(INSTALLED)  ## the test suite without the slow runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 -q

test-cuda: $(INSTALLED)  ## the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest -m cuda -q

slow: $(INSTALLED)  ## long statistical and end-to-end tests
	$(BIN)/python -m pytest -m slow -q

lint: $(INSTALLED)  ## formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(INSTALLED)  ## static types of the package and its tests
	$(BIN)/basedpyright

.PHONY: bench bench-peers
bench: $(INSTALLED)  ## measure speed and memory on this CPU (six minutes, nothing beside); rewrites docs/performance.md
	$(BIN)/python benchmarks/train_step.py --compile --out results/train_step.json
	$(BIN)/python benchmarks/predict.py --out results/predict.json
	$(BIN)/python benchmarks/scaling.py --out results/scaling.json
	$(BIN)/python benchmarks/dissertation_tables.py --out results/dissertation_tables.json
	$(BIN)/python benchmarks/performance_page.py

PEERS := build/peers-env
$(PEERS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@for peer in torchbnn bayesian-torch blitz-bayesian-pytorch ivon-opt; do \
	  $(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps $$peer || echo "cannot install $$peer"; done
	@touch $@

bench-peers: $(INSTALLED) $(PEERS)/.installed  ## the same step by other libraries, in an environment without torchvision
	$(PEERS)/bin/python benchmarks/peers.py --out results/peers.json
	$(BIN)/python benchmarks/performance_page.py

.PHONY: results
results: $(INSTALLED)  ## write docs/results.md and docs/results/ from results/; nothing is trained
	$(BIN)/bayeslim reproduce report

.PHONY: docs docs-serve
docs: $(INSTALLED)  ## build the documentation into build/site/; warnings are errors
	$(BIN)/python -m mkdocs build --strict

docs-serve: $(INSTALLED)  ## show the documentation at http://127.0.0.1:8000, rebuilt on every change
	$(BIN)/python -m mkdocs serve

check: lint types test  ## everything CI runs

clean:  ## remove the environment and caches
	rm -rf .venv .pytest_cache .ruff_cache demo-report
