# Everything a fresh machine needs is Python 3.11 or later with its venv module; `make help` lists the commands.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= auto
ARGS ?=
VM_TIME_LIMIT ?= 900
VM_TESTS_TIME_LIMIT ?= 1500
BENCHMARKS ?= $(wildcard benchmarks/*.py)

BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help compare figures vm-compare check test lint types imports unit test-slow test-long test-root test-root-slow test-vm \
    bench format clean

help: ## list the commands
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 14

compare: $(VENV)/.installed ## run the main job on the bundled scenario (options in ARGS="…")
	$(BIN)/bicoastal compare $(ARGS)

figures: $(VENV)/.installed ## draw efficiency against loss for the bundled scenario (options in ARGS="…")
	$(BIN)/bicoastal sweep loss $(ARGS)

vm-compare: $(VENV)/.installed ## the main job on Mininet with netem, in a guest under QEMU (options in ARGS="…")
	$(BIN)/python vagrant/guest.py --results out/vm --time-limit $(VM_TIME_LIMIT) -- \
	    python3 -m bicoastal compare --backend mininet --transport reno --transport adaptive \
	    --transport kernel-cubic --iterations 5 --set 'scenario.sample_interval=1 h' --out /results $(ARGS)

check: lint types imports unit ## lint, types, import contracts and tests

test: check ## the same as check

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests benchmarks

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

unit: $(VENV)/.installed-dev
	$(PYTEST) -n $(JOBS) $(ARGS)

test-slow: $(VENV)/.installed-dev ## the tests that take minutes
	$(PYTEST) -n $(JOBS) -m 'slow and not root and not vm' $(ARGS)

test-long: $(VENV)/.installed-dev ## the tests that take longer still
	$(PYTEST) -n $(JOBS) -m 'long and not root and not vm' $(ARGS)

test-root: $(VENV)/.installed-dev ## the tests that need root and network namespaces, one by one: they look at the clock
	$(PYTEST) -m 'root and not slow and not vm' $(ARGS)

test-root-slow: $(VENV)/.installed-dev ## those of them that take minutes
	$(PYTEST) -m 'root and slow and not vm' $(ARGS)

test-vm: $(VENV)/.installed-dev ## the tests of the guest under QEMU, and those that need Mininet and netem, inside it
	$(PYTEST) -m vm tests/vagrant $(ARGS)
	$(BIN)/python vagrant/guest.py --time-limit $(VM_TESTS_TIME_LIMIT) -- \
	    python3 -m pytest -p no:cacheprovider -m 'vm or root' \
	    tests/emulation/mininet/test_mininet.py tests/emulation/mininet/test_middles.py \
	    tests/emulation/probing/test_probe.py::test_netem_impairs_as_specified_or_says_that_the_kernel_has_none $(ARGS)

bench: $(VENV)/.installed-dev ## run the benchmarks and print their figures
	@for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python "$$benchmark"; done

format: $(VENV)/.installed-dev ## put the sources in the form that lint asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment, caches and build products
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second run install nothing, and so need no network. Installing with the development extras
# satisfies the plain stamp too.
$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || \
	    { echo "make: there is no $(PYTHON); name a Python 3.11 or later: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "make: $(PYTHON) is older than 3.11; name a later one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "make: $(PYTHON) lacks its venv module; install it (on Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --no-input --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --no-input --editable '.[dev]'
	@touch $(VENV)/.installed $@
