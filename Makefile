# `make run` and `make test` install what they need in .venv first. Each level installs only its own packages.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt
RUN := .venv/.ready-run
DEV := .venv/.ready-dev
DOCS := .venv/.ready-docs
# One file per worker at a time, in the order of tests/conftest.py: servers and nodes first because they mostly wait.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 40 --durations-min 5

.PHONY: run check test test-all lint browser docs bench mutants clean

run: $(RUN)
	$(BIN)/qccf compare quick --also lean --also-rounds 24

check: $(DEV) lint
	$(PYTEST) -m "not slow and not long and not deployment and not browser"

test: $(DEV) browser lint
	$(PYTEST) -m "not long"

test-all: $(DEV) browser lint
	$(PYTEST)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tests marked `browser` need Chromium. Without one and without the right to install it they are skipped.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends chromium >/dev/null && exit 0; \
	fi; \
	echo "No Chromium was found or installed: browser tests will be skipped."

docs: $(DOCS)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

bench: $(DEV)
	$(BIN)/python -m benchmarks.decide
	$(BIN)/python -m benchmarks.decision_tables

# Changes of the code that no test notices. It resumes; MUTANTS="--count 200 --seconds 3600" limits it.
mutants: $(DEV)
	nice -n 15 $(BIN)/python -m benchmarks.mutants $(MUTANTS)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "qccf needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) --editable '.[sim]'
	touch $@

$(DEV): $(RUN)
	$(INSTALL) --editable '.[dev]'
	touch $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv runs site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
