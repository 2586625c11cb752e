# One command each, from a clean clone on a machine with python3, make and gcc:
#   make demo    the main job on a real network       make test    the tests
# `make help` lists the rest.

.DEFAULT_GOAL := help
SHELL := /bin/sh
export PYTHONUTF8 := 1
# Tests start hundreds of Python processes, which would each compile Baton's modules again.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait for the processes that they start: with one worker a core, half of the cores idle.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr 2 '*' "$$(getconf _NPROCESSORS_ONLN)")

VENV := .venv
BIN := $(VENV)/bin
# Rewritten whenever pyproject.toml is newer; everything else is installed editable and needs no
# second installation.
INSTALLED := $(VENV)/installed

# Given on make's command line. Exported for the recipes, where the shell then quotes them.
MODEL =
TARGET =
THREADS = 1
SECONDS = 600
JOBS = 1
FOLDER = networks
export MODEL TARGET FOLDER

.PHONY: help demo test gpu-test gpu-proof gpu-kit sweep fuzz fuzz-networks networks lint format docs bench wheel journey journeys release clean c-compiler

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

demo: c-compiler $(INSTALLED) ## import, build, export, run, time: MODEL=path.onnx TARGET="llvm -mcpu=..."
	@$(BIN)/baton compile "$${MODEL:-resnet18_v1}" $${TARGET:+--target "$$TARGET"} -o $(VENV)/demo.so
	@$(BIN)/baton run $(VENV)/demo.so --random --repeat 20
	@$(BIN)/baton bench "$${MODEL:-resnet18_v1}" $${TARGET:+--target "$$TARGET"} --peers relax

test: c-compiler $(INSTALLED) ## run the tests
	$(BIN)/python -m pytest -q -n auto --dist worksteal

gpu-test: c-compiler $(VENV)/installed-cuda ## every family of CUDA kernels and the six models, on a machine with a GPU
	$(BIN)/python -m pytest -q -rs tests/gpu

gpu-proof: c-compiler $(VENV)/installed-cuda $(VENV)/installed-opencl ## what can be proven of CUDA without a GPU, in half an hour
	$(BIN)/python -m scripts.conformance.cuda_kernels
	$(BIN)/python -m scripts.conformance.cuda_models
	$(BIN)/python -m scripts.conformance.cuda_models --run
	$(BIN)/python -m pytest -q -rs -n 0 tests/opencl tests/compiler/runtime/nvidia

gpu-kit: c-compiler $(VENV)/installed-cuda ## build/gpu-kit: all that a machine with a GPU, and without network and TVM, needs for a first run
	$(BIN)/python -m scripts.gpu_kit.prebuild build/gpu-kit-parts
	$(BIN)/python -m scripts.gpu_kit.pack build/gpu-kit build/gpu-kit-parts

sweep: ## run the tests with ten times as many random examples
	BATON_SWEEP=10 $(MAKE) test

fuzz: c-compiler $(INSTALLED) ## damaged files, random programs and models: SECONDS=600 JOBS=1
	@$(BIN)/python -m scripts.fuzz.run_files --seconds $(SECONDS) --seed $$(date +%s)
	@$(BIN)/python -m scripts.fuzz.run_extents --seconds $(SECONDS) --first $$(date +%s)
	@$(BIN)/python -m scripts.fuzz.processes --seconds $(SECONDS) --seed $$(date +%s)
	@$(BIN)/python -m scripts.fuzz.run_relay --seconds $(SECONDS) --seed $$(date +%s)
	@$(BIN)/python -m scripts.fuzz.run_networks --seconds $(SECONDS) --jobs $(JOBS) --seed $$(date +%s)
	@$(BIN)/python -m scripts.fuzz.run_models --seconds $(SECONDS) --jobs $(JOBS) --seed $$(date +%s)

fuzz-networks: c-compiler $(INSTALLED) ## random whole networks with open axes: SECONDS=600 JOBS=1
	@$(BIN)/python -m scripts.fuzz.run_networks --seconds $(SECONDS) --jobs $(JOBS) --seed $$(date +%s)

networks: c-compiler $(INSTALLED) ## compare networks with open axes that scripts.models.open_networks wrote: FOLDER=networks
	@$(BIN)/python -m scripts.conformance.open_networks "$$FOLDER"

lint: $(INSTALLED) ## check style, format, types and imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed-docs ## build the documentation site into build/docs; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: c-compiler $(VENV)/installed-bench ## measure against the peers: MODEL="a.onnx b.onnx" THREADS=1
	@test -n "$$MODEL" || { echo 'make bench: say which models: make bench MODEL="a.onnx b.onnx"' >&2; exit 2; }
	$(BIN)/baton bench $(MODEL) --threads $(THREADS)

wheel: $(VENV)/installed-release ## dist/: sdist, wheel, wheel of the runtime alone; checked as PyPI does
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/baton --quiet runtime wheel --output dist
	$(BIN)/twine check --strict dist/*

journey: c-compiler wheel ## what a user does with the wheels in a fresh environment, with a small model
	$(BIN)/python -m scripts.release.journey --short dist

journeys: c-compiler wheel ## the same with real models, peers and measurements
	$(BIN)/python -m scripts.release.journey dist

release: journeys ## what a maintainer uploads, in dist/: tried wheels, sdist, SBOM, checksums
	rm -rf build/sbom
	$(BIN)/python -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet --disable-pip-version-check dist/baton_tvm-*.whl
	$(BIN)/cyclonedx-py environment --output-reproducible -o dist/baton_tvm.cdx.json build/sbom/bin/python
	cd dist && sha256sum *.whl *.tar.gz *.cdx.json > SHA256SUMS

clean: ## remove the environment and everything generated
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@set -eu; \
	python=''; \
	for candidate in python3 python3.13 python3.12 python3.11 python3.10; do \
	  if $$candidate -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; \
	  then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'make: Baton needs Python 3.10 to 3.13, and none is on PATH' >&2; exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "make: $$python can't create environments: its venv module is missing;" >&2; \
	  echo "      on Debian and Ubuntu: apt-get install python$$version-venv" >&2; exit 1; \
	fi; \
	rm -rf $(VENV); \
	$$python -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@

# What one of the extras brings besides.
$(VENV)/installed-%: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# TVM links every exported library with the system's C++ compiler.
c-compiler:
	@for candidate in "$${CXX:-}" "$${CC:-}" g++ gcc clang++ clang c++ cc; do \
	  if [ -n "$$candidate" ] && command -v "$$candidate" >/dev/null 2>&1; then exit 0; fi; \
	done; \
	echo 'make: no C or C++ compiler is on PATH; exporting a library needs one to link it' >&2; \
	echo '      on Debian and Ubuntu: apt-get install g++; or set CXX to the compiler' >&2; \
	exit 1
