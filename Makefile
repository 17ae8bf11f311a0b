# Everything works on a fresh clone: each target makes .venv and installs what it needs first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PYTHONDONTWRITEBYTECODE := 1
export OMP_NUM_THREADS := 1

.PHONY: help setup browser proxy demo test test-all lint format docs bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is needed, found $$($(PYTHON) --version)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[data,onnx,search,tracking,federation,cluster,test]'
	@touch $(READY)

setup: $(READY) ## make .venv and install the package with everything tests need

# $(call apt,commands,packages,what it is,which tests need it): installed where this may be done
define apt
	@if command -v $(1) >/dev/null; then :; \
	elif command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then \
		as=""; [ "$$(id -u)" = 0 ] || as="sudo -n"; \
		{ $$as apt-get install -qq -y $(2) || \
			{ $$as apt-get update -qq && $$as apt-get install -qq -y $(2); }; } >/dev/null 2>&1 \
			|| echo "note: $(3) could not be installed; $(4) are skipped"; \
	else echo "note: no $(3) and no right to install it; $(4) are skipped"; fi
endef

browser: ## install Chromium for the tests of pages, where this may be done; without it they are skipped
	$(call apt,chromium >/dev/null && command -v chromedriver,chromium chromium-driver,Chromium,tests of pages in a browser)

proxy: ## install nginx for the tests of a federation behind it (the package may start it on port 80); without it they are skipped
	$(call apt,nginx,nginx,nginx,tests of a federation behind a proxy)

demo: $(READY) ## train the methods on two embedded data sets and print their tables (a few minutes)
	$(BIN)/panacea compare examples/demo_fl60.yaml
	$(BIN)/panacea compare examples/demo_digits.yaml
	$(BIN)/panacea join runs/demo/fl60-panacea-s0-* --neighbors 3,17 --out runs/demo/newcomer.safetensors
	$(BIN)/panacea report runs/demo

test: $(READY) browser lint ## lint, types, and the tests CI runs (minutes)
	$(BIN)/python -m pytest -m "not paper and not gpu" -n 2 --dist worksteal --durations=20 --cov --cov-report=term:skip-covered

test-all: $(READY) browser lint ## also the long tests: published numbers, faults, many kills
	$(BIN)/python -m pytest -m "not gpu" -n 2 --dist worksteal --durations=20 --cov --cov-report=term:skip-covered

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff format and mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## write the generated pages (methods, data sets, keys)
	$(BIN)/python docs/generate.py

bench: $(READY) ## speed of every engine against a plain loop, as ratios of one interleaved run (minutes)
	$(BIN)/panacea bench

clean: ## remove .venv, caches and runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* build dist runs src/*.egg-info
