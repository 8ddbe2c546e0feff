# make train   set up what training needs, and train on the generated data set
# make first-minute  time `make train` in a fresh clone with an empty home
# make test    set up, and run the tests
# make test-all  the slow tests too, and programs compiled as users' are
# make check   check linting, formatting and types
# make mutants  whether the tests catch faults that are put into jgs on purpose
# make docs    make a site of the pages of docs/, in build/site
# make bench    measure jgs against DGL and GraphBolt (ARGS=--quick for two minutes)
# make sanitize  run the kernels under AddressSanitizer, UBSan and ThreadSanitizer
# make versions  before a release: run the tests on the lowest versions that pyproject.toml
#                allows, with LOWEST=python3.11, and on the newest ones, with NEWEST=python3.13
# make wheel   make the wheel for other machines, in build/wheels, and try it without a compiler
# make newcomer  try the wheel in an empty home: install, train, predict, draw (WHEEL=a file)
PYTHON ?= python3
LOWEST ?= python3.11
NEWEST ?= python3.13
VENV ?= .venv
BIN := $(VENV)/bin
KERNELS := $(wildcard jgs/kernels/*.cc jgs/kernels/*.cu jgs/kernels/*.h jgs/kernels/*.inc) jgs/kernels/CMakeLists.txt

.PHONY: train first-minute test test-all mutants check docs sanitize bench versions wheel newcomer
.PHONY: clean

# Without ARGS the run is kept, and what to do with it is said.
RUN := build/first-run
train: $(VENV)/kernels
ifdef ARGS
	$(BIN)/python -m jgs.train $(ARGS)
else
	@rm -rf $(RUN)
	$(BIN)/python -m jgs.train --run-dir $(RUN)
	@echo 'What it learned, as a page:  $(BIN)/jgs report --run-dir $(RUN)'
	@echo 'Predictions as a table:      $(BIN)/jgs predict --run-dir $(RUN) --split test --out predictions.csv'
	@echo 'Your own graph:              $(BIN)/jgs train --dataset FOLDER   (docs/guides/data.md)'
endif

first-minute:
	$(PYTHON) tools/first_minute.py

# Test files run in processes side by side. With any ARGS they run in one process, in order.
test: ARGS ?= -n logical --maxprocesses 4
test: $(VENV)/kernels $(VENV)/installed
	$(BIN)/python -m pytest --durations=20 $(ARGS)

test-all:
	JGS_TEST_OPTIMISED=1 $(MAKE) test ARGS="-n logical --maxprocesses 4 -m ''"

mutants: $(VENV)/kernels $(VENV)/installed
	$(BIN)/python tools/mutants $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/installed
	$(BIN)/python -m sphinx --builder html --fail-on-warning -q docs build/site

sanitize: $(VENV)/kernels $(VENV)/installed
	PYTHON=$(BIN)/python tests/kernels/sanitize

bench: $(VENV)/kernels $(VENV)/installed
	$(BIN)/python -m benchmarks $(ARGS)

wheel: | $(VENV)/bin/pip
	$(BIN)/python tools/wheel.py

newcomer: | $(VENV)/bin/pip
	$(BIN)/python tools/newcomer.py $(WHEEL)

versions:
	rm -rf build/lowest build/newest && mkdir -p build
	$(LOWEST) tools/lowest.py mpi partition kaminpar viz tables jraph grain > build/lowest.txt
	PIP_CONSTRAINT=$(CURDIR)/build/lowest.txt $(MAKE) test VENV=build/lowest PYTHON=$(LOWEST)
	$(MAKE) test VENV=build/newest PYTHON=$(NEWEST)

# The installation is editable: the Python files are used where they lie. Only changed kernels
# are compiled again.
$(VENV)/base: pyproject.toml | $(VENV)/bin/pip
	@$(BIN)/python tools/set_up.py
	@touch $@ $(VENV)/kernels

$(VENV)/kernels: $(KERNELS) | $(VENV)/base
	@[ -z "$$(find $(KERNELS) -newer $@)" ] || ($(BIN)/pip install --quiet cmake && \
	  $(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .)
	@touch $@

# What tests, benchmarks, checks and the site need beside.
# mpi4jax is compiled against the MPICH of the environment, so MPICH is installed before it.
$(VENV)/installed: $(VENV)/base
	$(BIN)/python tools/needed.py test viz > $(VENV)/needed.txt
	$(BIN)/pip install --quiet cmake --requirement $(VENV)/needed.txt
	$(BIN)/python tools/install_mpi.py || echo 'warning: without MPI (--comm mpi), all else works' >&2
	@touch $@

$(VENV)/bin/pip:
	$(PYTHON) tools/make_venv.py $(VENV)

clean:
	rm -rf $(VENV) build
