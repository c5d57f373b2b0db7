# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: setup demo test test-fast test-portable mutants check format docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml reproduction/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) 'pip>=25.1'
	$(PIP) --editable '.[dask,xarray]' --editable reproduction --group dev
	touch $@

demo: setup
	$(BIN)/prerank demo

test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal
	$(BIN)/python -m pytest --doctest-modules src/prerank reproduction/src/prerank_paper -q

# For the inner loop: one set of parameters for every test of the library, without slow ones, pages and other packages.
test-fast: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal --fast tests --ignore=tests/docs --ignore=tests/connectors

# The numerical tests as other processors would run them: threads, instruction sets, the library's reproducible mode.
test-portable: setup
	.ci/portable $(BIN)/python

# Would the tests notice a fault? 400 mutants, half an hour; ARGS="--changed HEAD~3" or "--only scores" for less.
mutants: setup
	$(PIP) --group mutants
	$(BIN)/python benchmarks/mutants.py $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/_build/docstring_check.py
	$(BIN)/sphinx-build --builder html --nitpicky --fail-on-warning --keep-going --quiet --jobs 2 docs build/site

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/sphinx-build --builder html --nitpicky --quiet --jobs 2 docs build/site
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
