# `make study` and `make test` create the environment on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Processes that run tests, a thread each: two share two cores better than one with two threads.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help study test test-full test-soak test-mutations check format bench coverage docs gallery clean
help:
	@echo "make study      run the quickstart study (about a minute after installation)"
	@echo "make test       the fast tests: minutes on two cores (WORKERS=8: on eight)"
	@echo "make test-full  all that must hold before a change lands: also real clusters, statistics"
	@echo "make test-soak  these and every combination of parts, all experiments, further kills: hours"
	@echo "make test-mutations  which tier catches each of some planted faults"
	@echo "make check      ruff and mypy; make format: ruff format"
	@echo "make bench      the benchmarks, all of them; fails if one does, as one above its goal"
	@echo "make coverage   measures the statistics, and writes their page (an hour and a half of one core)"
	@echo "make gallery    the pages of the measured studies, from their kept tables: docs/gallery"
	@echo "make docs       the documentation as a site: docs/_build/html/index.html"

study: $(VENV)/.installed
	$(BIN)/clsweep run quickstart

test: $(VENV)/.installed-dev
	$(PYTEST)

test-full: $(VENV)/.installed-dev
	$(PYTEST) -m 'not soak'

test-soak: $(VENV)/.installed-dev
	$(PYTEST) -m ''

test-mutations: $(VENV)/.installed-dev
	$(BIN)/python tests/mutations.py

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev
	failed=0; for file in tests/benchmarks/[!_]*.py; do $(BIN)/python $$file || failed=1; done; exit $$failed

coverage: $(VENV)/.installed-dev
	$(BIN)/python tests/coverage.py

gallery: $(VENV)/.installed-dev
	$(BIN)/python docs/gallery.py

docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx --quiet --fail-on-warning -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build docs/reference build dist .pytest_cache .ruff_cache .mypy_cache

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "clsweep needs Python 3.11 or newer, found: $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Creating the environment in $(VENV): a few minutes and 6 GB, once."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e '.[dev]'
	@touch $@
