# `make lab` opens the learner's copy of the lessons, `make test` checks all of it. Both make their environment first, in .venv.
#
#   make lab LAB_ARGS=--no-browser                            options for `amp-lessons lab`
#   make lab LAB_ARGS=--originals                             for authors: the notebooks that git tracks
#   make lab TORCH_INDEX=https://download.pytorch.org/whl/cpu PyTorch without CUDA's libraries, which are 4 GB
#   make lab PYTHON=python3.12                                another Python than python3
#   make test CONSTRAINTS=newest.txt                          other versions than those of constraints.txt; a file of its own may be empty
#   make test PYTEST_ARGS="-k census"                         some of the tests
#   make test-shuffled SEEDS=7                                all tests in another order
#   make bench BENCH=import_time                              some of the benchmarks
#   make notebooks NOTEBOOKS=notebooks/03_loss_scaling.ipynb  store one lesson again
#   make classroom-load LOAD_ARGS="--levels 10 30"            how many learners: `--help` says what can be said
#   make site SITE_OUT=folder                                 where the pages go
#   make gpu GPU_OUT=results GPU_ARGS="--minutes 9"           where a GPU's recording goes, and for how long

PYTHON ?= python3
TORCH_INDEX ?=
CONSTRAINTS ?= constraints.txt
LAB_ARGS ?=
PYTEST_ARGS ?=
SEEDS ?= 1 2 3
BENCH ?=
GPU_OUT ?= docs/gpu
GPU_ARGS ?=
LOAD_ARGS ?=
SITE_OUT ?= build/site

LAB_EXTRAS := lab,models,pretrained
TEST_EXTRAS := lab,models,pretrained,classroom,test
BIN := .venv/bin
NOTEBOOKS ?= $(sort $(wildcard notebooks/*.ipynb))
INSTALL = $(BIN)/python -m pip install --no-compile --constraint $(CONSTRAINTS) $(addprefix --extra-index-url ,$(TORCH_INDEX))
# Two processes more than there are cores: a third of the time a test waits, for a kernel, a page or a limit. By
# that, tests use 94 % of two cores; with one process more it would be 85 %.
WORKERS = $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 2)")
TOGETHER = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
QUICKLY := tests/formats tests/scaling tests/_base/text tests/course/test_progress.py tests/audit/test_codes.py \
	tests/test_architecture.py tests/test_make.py
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=120 --nbval-sanitize-with tests/nbval_sanitize.cfg

# Some containers set this. Each kernel and each test process would then compile PyTorch's sources anew: 7 seconds.
unexport PYTHONDONTWRITEBYTECODE

# The processes that run tests take all cores, so each gets one thread: with more they wait for each other.
test test-all test-each test-shuffled quick: export OMP_NUM_THREADS := 1

.PHONY: help lab test test-all test-each test-shuffled quick lint style exercise notebooks bench gpu site classroom-load clean

help:
	@echo "make lab        open your own copy of the lessons in JupyterLab"
	@echo "make test       about ten minutes on two quiet cores: linters, notebooks, views, each mechanism once"
	@echo "make test-all   everything there is, nightly and before a release: three quarters of an hour"
	@echo "make test-each  each file of tests in a process of its own"
	@echo "make test-shuffled  all tests three times, in other orders"
	@echo "make quick      one minute: formats, scaling, what is kept, and how the code is built"
	@echo "make lint       run the linters"
	@echo "make exercise   begin an exercise: make exercise ID=my_exercise LESSON=03"
	@echo "make notebooks  run every notebook and store what it shows"
	@echo "make site       write the course as pages, to be read without a kernel"
	@echo "make bench      run the benchmarks"
	@echo "make gpu        record what tests, notebooks and bench do on this machine's GPU"
	@echo "make classroom-load  measure how many learners a server bears"
	@echo "make clean      remove the environment and all caches"

lab: .venv/installed-lab
	$(BIN)/amp-lessons lab $(LAB_ARGS)

# mypy is a test of tests/_base: before the tests it would leave one of two cores idle for a minute.
test: style
	$(BIN)/python -m pytest $(TOGETHER) -m "not thorough" $(NBVAL) $(NOTEBOOKS) tests $(PYTEST_ARGS)

test-all: style
	$(BIN)/python -m pytest $(TOGETHER) $(NBVAL) $(NOTEBOOKS) tests $(PYTEST_ARGS)

# What passes alone, after any other test and in any order depends on none that ran before.
test-each: .venv/installed-test
	@git ls-files 'tests/**test_*.py' | xargs -P $(WORKERS) -I{} sh -c \
		'said=$$($(BIN)/python -m pytest -q $(PYTEST_ARGS) {} 2>&1) || [ $$? = 5 ] || { echo "$$said"; exit 1; }'

# It is taken away again: where it is installed it shuffles every run, a notebook's cells, too.
test-shuffled: .venv/installed-test
	$(BIN)/python -m pip install --quiet pytest-randomly
	@failed=0; for seed in $(SEEDS); do \
		$(BIN)/python -m pytest $(TOGETHER) --randomly-seed=$$seed tests $(PYTEST_ARGS) || failed=1; done; \
		$(BIN)/python -m pip uninstall --quiet --yes pytest-randomly; exit $$failed

quick: .venv/installed-test
	$(BIN)/python -m pytest -n auto -m "not slow and not thorough" $(QUICKLY) $(PYTEST_ARGS)

lint: style
	$(BIN)/mypy

style: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

exercise: .venv/installed-test
	@$(BIN)/python -m tools.new_exercise "$(ID)" "$(LESSON)"

notebooks: .venv/installed-test
	$(BIN)/python tools/store_notebooks.py $(NOTEBOOKS)

bench: .venv/installed-test
	$(BIN)/python -m benchmarks $(BENCH)

site: .venv/installed-lab
	$(BIN)/amp-lessons site $(SITE_OUT) --frames build/frames

# With the machine's own Python and PyTorch: nothing is installed.
gpu:
	@$(PYTHON) -m tools.gpu --out "$(GPU_OUT)" $(GPU_ARGS)

classroom-load: .venv/installed-test
	@$(BIN)/python -m classroom.load $(LOAD_ARGS)

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/installed-lab: pyproject.toml $(CONSTRAINTS) | $(BIN)/pip
	$(INSTALL) --editable '.[$(LAB_EXTRAS)]'
	@touch $@

.venv/installed-test: pyproject.toml $(CONSTRAINTS) | $(BIN)/pip
	$(INSTALL) --editable '.[$(TEST_EXTRAS)]'
	@touch $@ .venv/installed-lab

$(BIN)/pip:
	@sh tools/check_prerequisites.sh $(PYTHON)
	@echo "Making the environment in .venv: a few minutes and 2 GB of disk, or more with CUDA's libraries."
	$(PYTHON) -m venv .venv
