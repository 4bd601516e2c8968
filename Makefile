# `make study` and `make test` create the environment on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help study test test-slow check format bench clean
help:
	@echo "make study      run the quickstart study (about a minute after installation)"
	@echo "make test       the tests; make test-slow: those that take minutes"
	@echo "make check      ruff and mypy; make format: ruff format"
	@echo "make bench      the benchmarks"

study: $(VENV)/.installed
	$(BIN)/clsweep run studies/quickstart.yaml

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev
	for file in tests/benchmarks/[!_]*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache

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
