# make train   set up and run the main job on the embedded data set
# make test    set up and run the tests
# make check   linting, formatting, types
# make bench    jgs against DGL and GraphBolt (ARGS=--quick for two minutes)
# make sanitize  the kernels under AddressSanitizer, UBSan and ThreadSanitizer
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
KERNELS := $(wildcard jgs/kernels/*.cc jgs/kernels/*.h jgs/kernels/*.inc) jgs/kernels/CMakeLists.txt

.PHONY: train test check sanitize bench clean

train: $(VENV)/installed
	$(BIN)/python -m jgs.train $(ARGS)

# Test files in processes side by side; in one, and in order, with any ARGS.
test: ARGS ?= -n logical --maxprocesses 4
test: $(VENV)/installed
	$(BIN)/python -m pytest --durations=20 $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sanitize: $(VENV)/installed
	PYTHON=$(BIN)/python tests/kernels/sanitize

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks $(ARGS)

# Editable: the Python files are used where they lie; a changed kernel is built again.
# mpi4jax is compiled against the MPICH of the environment, so that comes before it.
$(VENV)/installed: pyproject.toml $(KERNELS) | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --editable '.[test,viz]'
	$(BIN)/python tools/install_mpi.py || echo 'warning: without MPI (--comm mpi), all else works' >&2
	@touch $@

$(VENV)/bin/pip:
	$(PYTHON) tools/make_venv.py $(VENV)

clean:
	rm -rf $(VENV) build
