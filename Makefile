# The interpreter that makes the environment, 3.11 or newer: make setup PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format unit long models adapters engine packaging shapes versions matrix docs clean

# The engine tests take both cores, and a failed lint should stop the rest.
.NOTPARALLEL:

help:  ## Show this list
	@echo "usage: make TARGET [PYTHON=python3.12]"
	@sed -nE 's/^([a-z]+):.*  ## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup:  ## Make .venv with vLLM for the CPU and vstate in it; done at once when up to date
	@$(PYTHON) tools/setup_env.py --venv $(VENV)

demo: setup  ## Trace a tiny hybrid model on this machine and reconcile the run
	@tools/demo.sh $(VENV)

test: lint unit long models engine packaging  ## Lint, then all tests

lint: setup  ## ruff (rules and format) and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: setup  ## Mend what ruff can, then format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

unit: setup  ## Tests that take a moment and need no engine
	$(PYTEST) -n 2 tests/unit -m "not long"

long: setup  ## Tests that need no engine and take longer: cut streams, faults of the disk, memory, vLLM's modules
	$(PYTEST) -n 2 --dist loadgroup tests/unit tests/versions -m "long and not engine"

engine: setup  ## Tests that run the real vLLM, two files at a time
	@mkdir -p build
	$(PYTEST) -n 2 --dist loadfile tests/engine --matrix-record build/matrix.json

models: setup  ## Every tiny model, worked out from its configuration, against what vLLM builds (two minutes)
	$(PYTEST) tests/adapters/test_models.py

adapters: setup  ## The same for drawn variations of each family, for media, and with each term changed (half an hour)
	$(PYTEST) -n 2 --dist load tests/adapters

shapes: setup  ## The true-size models against formulas of their own, on the meta device (four minutes)
	$(PYTEST) -n 2 --dist loadfile tests/full

packaging: setup  ## What is shipped, and which layer imports which
	$(PYTEST) tests/packaging

matrix: engine  ## Run those tests, and write docs/matrix.md from what they showed
	cp build/matrix.json docs/matrix.json
	$(PY) tools/matrix.py docs/matrix.json

versions:  ## The replay tests against four minors of vLLM, 3.3 GB and some minutes each; writes docs/versions.md
	@$(PYTHON) tools/versions.py

docs: setup  ## Write docs/schema.md anew from the declarations
	@mkdir -p docs
	$(PY) -m vstate.schemas.document docs/schema.md

clean:  ## Remove build products and caches; .venv and runs/ stay
	rm -rf build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
