# Every way of working with the project. CI calls nothing but these targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_OPTIONS := --quiet --disable-pip-version-check --constraint constraints.txt
PIP_INSTALL := $(BIN)/python -m pip install $(PIP_OPTIONS)
# Wheels of the packages that a release needs.
PACKAGES := build/packages

# Without cached bytecode every process compiles the package, and every test process rewrites all assertions anew:
# 20 s of processor time for each test process.
unexport PYTHONDONTWRITEBYTECODE

# A half-made environment is made anew: Python makes its program first, and pip may fail.
.DELETE_ON_ERROR:

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "streamdedup needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing streamdedup and its dependencies into $(VENV): some minutes'
	$(PIP_INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[demo,dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[demo,dev,bench]'
	@touch $@ $(VENV)/.dev $(VENV)/.demo

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.demo ## Watch documents become alerts, on servers of the demo's own
	$(BIN)/streamdedup demo

.PHONY: check
check: $(VENV)/.dev ## Lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Processes that run tests side by side, each with servers of its own; 0 runs all tests in one process.
WORKERS ?= 2
# The long tests wait for servers most of the time.
test-all: WORKERS = 3
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder

.PHONY: test
test: $(VENV)/.dev ## The tests for every change: units, contracts, and the daemon on a real Kafka; WORKERS= processes
	$(PYTEST)

.PHONY: test-all
test-all: $(VENV)/.bench ## The long tests, longer searches for counterexamples, store and daemon on redis-server; adds to `make test`
	$(PYTEST) -m "long or hypothesis" --hypothesis-profile thorough
	TEST_REDIS_SERVER=redis-server $(PYTEST) tests/contract/test_store.py tests/acceptance/test_daemon.py

SEED ?= 1
HISTORIES ?= 10000

.PHONY: simulate
simulate: $(VENV)/.dev ## The real daemons through HISTORIES random histories from SEED on, on all cores; see docs/testing.md
	$(BIN)/python -m tests.simulation --histories $(HISTORIES) --seed $(SEED)

KILLS ?= 12
BROKERS ?= 1
CHANGES ?= 0
ENDS ?= 0
LAYOUT ?= sets
LOSSES ?= 0
REPORT ?= chaos-report.json

.PHONY: chaos
chaos: $(VENV)/.dev ## Faults while documents flow: SEED=, KILLS=, BROKERS=1 or 3, CHANGES= and ENDS= (shares), LAYOUT=, LOSSES=, SUPPRESS=1, REPORT=; see docs/testing.md
	$(BIN)/python -m tests.chaos storm --seed $(SEED) --kills $(KILLS) --brokers $(BROKERS) --changes $(CHANGES) --ends $(ENDS) --layout $(LAYOUT) --losses $(LOSSES) $(if $(SUPPRESS),--suppress) --report $(REPORT)

.PHONY: chaos-selftest
chaos-selftest: $(VENV)/.dev ## Deliberately broken loops, each of which the harness must catch
	$(BIN)/python -m tests.chaos selftest

MESSAGES ?= 1000000
REQUESTS ?= 200000

.PHONY: fuzz
fuzz: $(VENV)/.dev ## MESSAGES damaged messages and REQUESTS of HTTP by SEED, each accounted for; see docs/testing.md
	$(BIN)/python -m tests.fuzz messages --count $(MESSAGES) --seed $(SEED)
	$(BIN)/python -m tests.fuzz requests --count $(REQUESTS) --seed $(SEED)

.PHONY: fuzz-daemon
fuzz-daemon: $(VENV)/.dev ## 20,000 damaged messages by SEED, and 20,000 with schemas, through a real Kafka and the daemon
	$(BIN)/python -m tests.fuzz daemon --seed $(SEED)
	$(BIN)/python -m tests.fuzz schemas --seed $(SEED)

MINUTES ?= 60
RATE ?= 200

.PHONY: soak
soak: $(VENV)/.dev ## One daemon under a steady load for MINUTES, at RATE documents/s: does anything grow? See docs/testing.md
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --rate $(RATE) --seed $(SEED)

# Options of the four targets below: --quick, names of benchmarks, --against DIR. Folder of the open sets.
BENCH ?=
DATA ?= ../shared/data

.PHONY: bench
bench: $(VENV)/.bench ## Speed, latency and memory beside other libraries; BENCH= takes --quick, --against DIR, and names
	BENCH_DATA=$(DATA) $(BIN)/python -m benchmarks --group bench $(BENCH)

.PHONY: quality
quality: $(VENV)/.bench ## Recall and precision on the open sets in DATA=, the daemon beside scan
	BENCH_DATA=$(DATA) $(BIN)/python -m benchmarks --group quality $(BENCH)

.PHONY: experiments
experiments: $(VENV)/.bench ## The experiments of the source material: worked examples, Reuters-21578, reviews
	BENCH_DATA=$(DATA) $(BIN)/python -m benchmarks --group experiments $(BENCH)

.PHONY: robustness
robustness: $(VENV)/.bench ## The effect of edits on a copy, and whether it is found
	BENCH_DATA=$(DATA) $(BIN)/python -m benchmarks --group robustness $(BENCH)

.PHONY: tools
tools: | $(BIN)/python ## Install the tools of further checks (as root on Debian): redis-server, PostgreSQL, promtool, Chromium, jq, javac, Maven, kustomize, vegeta
	@deploy/install-tools.sh
	$(BIN)/python -m pip download $(PIP_OPTIONS) --only-binary :all: --dest $(PACKAGES) '.[demo,registry]'

.PHONY: release
release: $(VENV)/.bench ## Build sdist, wheel, bill of materials and checksums of the present commit into dist/
	deploy/release.sh $(BIN)/python $(PACKAGES)

.PHONY: clean
clean: ## Remove the environment and everything generated; the broker's jars stay in their cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
