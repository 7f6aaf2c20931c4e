# The few verbs of the project. Everything is installed by file into .venv and .cache, both ignored by git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help setup demo test test-pulumi test-cluster lint lock golden clean
help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/run.stamp: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

setup: $(VENV)/run.stamp ## the virtual environment that `pulumi up` and `coldstart` use

demo: $(VENV)/run.stamp ## what an environment and its models would be, offline; files in out/
	@coldstart render --all -o out

lock: ## resolve both lock files again, with hashes
	uv pip compile --quiet --universal --no-header --no-annotate --no-emit-index-url --generate-hashes --python-version 3.11 pyproject.toml --group build -o requirements.lock
	uv pip compile --quiet --universal --no-header --no-annotate --no-emit-index-url --generate-hashes --python-version 3.11 pyproject.toml --group build --group check --group test -c requirements.lock -o requirements-dev.lock

test: $(VENV)/dev.stamp ## lint, types, arrows and every test that needs nothing beyond PyPI
	$(MAKE) --no-print-directory lint
	pytest -n 2

lint: $(VENV)/dev.stamp
	ruff check .
	ruff format --check .
	lint-imports
	basedpyright

bench: $(VENV)/run.stamp ## times and memory of the blueprint: never part of a test
	$(BIN)/python benchmarks/blueprint.py

golden: $(VENV)/dev.stamp ## write the golden files again; read the diff
	pytest -q tests/golden --update-golden

clean: ## everything made by this file
	rm -rf $(VENV) .cache out
