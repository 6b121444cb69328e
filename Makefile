# Both commands bring all their set-up: `make demo` runs the main job, `make test` every ring of tests.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help setup demo test explore check container-images broker-start broker-stop clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

setup: $(INSTALLED) ## Make the virtual environment and install the project into it

# Again whenever pyproject.toml has changed since.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=...")'
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "installing the project and its tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup ## Act out the ghost write on a real broker, with the fence and without, and prove it from the log
	@$(BIN)/epochfence demo

test: check ## Lint, types, then every ring of tests
	@$(BIN)/python -m tests.rings $(RINGS)

explore: setup ## Explore more interleavings than `make test` has time for: millions of states, some minutes
	@for orphans in REPORT COMPENSATE; do \
	  $(BIN)/epochfence explore --orphans $$orphans; \
	  $(BIN)/epochfence explore --orphans $$orphans --epochs 4 --deliveries 1; \
	  $(BIN)/epochfence explore --orphans $$orphans --epochs 2 --idempotent --states 4000000; \
	  $(BIN)/epochfence explore --orphans $$orphans --policy REPLAY --deliveries 1; \
	  $(BIN)/epochfence explore --orphans $$orphans --policy REPLAY --deliveries 1 --duplicates 0 --hostile 1; \
	done
	@$(BIN)/epochfence explore --two-calls --epochs 2 --deliveries 1 --duplicates 0 --states 3000000

check: setup ## Lint and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

container-images: ## Build the images that stand in where no image registry is reached (root, debootstrap, Docker)
	@docker/kafka-local/build
	@docker build --build-arg BASE_IMAGE=epochfence/base:bookworm --tag epochfence/processor:local .

broker-start: setup ## Start a single-node Kafka on this machine
	@$(BIN)/epochfence broker start

broker-stop: setup ## Stop it; its data stays
	@$(BIN)/epochfence broker stop

clean: ## Remove what the commands above made in this folder
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
