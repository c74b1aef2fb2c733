# Two commands: `make demo` and `make test`. Both set up .venv on first use and skip that afterwards.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml constraints.txt Makefile
# Test processes side by side. Each test file stays in one of them: what its tests share is made once.
JOBS ?= 2

.PHONY: demo test check lint types speed clean
.SUFFIXES:

demo: $(VENV)/.models
	@$(BIN)/voicegate replay bench/demo/demo.flac

test: $(VENV)/.dev $(VENV)/.models
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: lint types test

lint: $(VENV)/.dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy

speed: $(VENV)/.dev $(VENV)/.models
	@$(BIN)/python -m bench.speed $(ARGS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] < (3, 13) else "voicegate needs Python 3.11 or 3.12; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(INPUTS) | $(VENV)/bin/python
	@echo "installing voicegate (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the test tools"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/voicegate models pull minilm-l6-v2
	@touch $@

$(VENV)/.models: $(VENV)/.base models/registry.toml
	@$(BIN)/voicegate models pull
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
