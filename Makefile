# The two main targets are `demo` and `test`. Each does its own set-up, and prints each step.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CARGO ?= cargo
# The module fits every Python from 3.10 on. Otherwise each other Python in PATH would compile it again.
export PYO3_NO_PYTHON := 1
say = @printf '\033[1m==> %s\033[0m\n' "$(1)"

RUST_SOURCES := $(shell find crates bindings compat -name '*.rs' -o -name Cargo.toml 2>/dev/null) Cargo.toml Cargo.lock
PYTHON_SOURCES := $(shell find bindings/python -name '*.py' -o -name '*.pyi' -o -name pyproject.toml 2>/dev/null)

# `make demo`: command, Python module and library for C by one build, in which their dependencies have the same features.
INSTALLED := -p nervure-cli -p nervure-python -p nervure-c
DEMO_BUILD := --release $(INSTALLED)
# `make bench`: linked as a whole.
DIST_BUILD := --profile dist $(INSTALLED)
# All stages of `make test` share this build.
TEST_BUILD := --workspace --all-features --lib --bins --examples
# Tests of nodes in C and C++ need both; a machine without them leaves these tests out.
CAN_BUILD_CPP := $(shell command -v c++ >/dev/null && command -v pkg-config >/dev/null && echo yes)
WITHOUT_CPP = $(if $(CAN_BUILD_CPP),,-E 'not package(nervure-c)')
NEXTEST = $(CURDIR)/$(BIN)/cargo-nextest nextest run --workspace --all-features --locked --config-file $(CURDIR)/.config/nextest.toml
PROGRAMS = $(CARGO) build --locked --quiet $(TEST_BUILD)
# `$(call install,OPTIONS OF CARGO BUILD)` builds module and command, and puts them into the environment.
define install
$(CARGO) build --locked $(1)
PATH="$(CURDIR)/$(BIN):$$PATH" NERVURE_CARGO_OPTIONS="$(1)" CARGO="$(CARGO)" $(PIP) install --no-build-isolation --editable bindings/python
rm -f $(VENV)/.installed-* && touch $@
endef

.PHONY: help demo two-robots test build-test lint test-small test-rust test-dora test-loom test-asan test-python test-lab test-guides test-fuzz test-soak test-faults test-long bench bench-setup bench-link wheel packages linkemu soak fuzz asan miri clean
.DELETE_ON_ERROR:

help: ## Print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/.installed-demo $(VENV)/.demo ## Build Nervure and run a dataflow on recorded camera and IMU data
	$(call say,Running examples/drive: camera and lanes and IMU and fusion and annotation in five processes)
	@$(BIN)/nervure run examples/drive/dataflow.yml

two-robots: $(VENV)/.installed-demo $(VENV)/.linkemu $(VENV)/.two-robots ## Run a dataflow on two robots and a base, in network namespaces over a bad link (root)
	$(call say,Running examples/two-robots: three machines in namespaces and a link that loses a fifth of its packets)
	@$(BIN)/python examples/two-robots/run.py

test: ## Run all tests, with their set-up
	@$(PYTHON) scripts/stages.py
	$(call say,All tests passed)

build-test: $(VENV)/.installed-test $(VENV)/.test $(VENV)/.lab $(VENV)/.demo ## Build all that the tests share
	$(call say,Building the Rust tests)
	@$(NEXTEST) --no-run
	@$(PYTHON) scripts/check_build_size.py target/debug/nervure
	$(call say,Building dora's API and its tests)
	@$(if $(CAN_BUILD_CPP),cd compat/dora && $(PROGRAMS) && $(NEXTEST) --no-run,echo "SKIPPED: apt install g++ pkg-config")

lint: $(VENV)/.test ## Check formatting, clippy, dependency rules, structure, number of crates, ruff, mypy
	$(call say,Checking formatting and lints and dependency rules)
	@for workspace in . compat/dora lab/programs fuzz; do (cd $$workspace && $(CARGO) fmt --all --check) || exit; done
	@for workspace in . $(if $(CAN_BUILD_CPP),compat/dora); do \
	  (cd $$workspace && $(CARGO) clippy --workspace --all-targets --all-features --locked --quiet -- -D warnings) || exit; \
	done
	@$(PYTHON) scripts/check_dependencies.py
	@$(PYTHON) scripts/check_structure.py
	@$(PYTHON) scripts/check_sentences.py
	@$(PYTHON) scripts/check_build_size.py
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@cd lab && $(CURDIR)/$(BIN)/python -m mypy --no-error-summary

test-small: ## Check the build for small hardware, and for ARM of 32 and 64 bits where rustup has these targets
	$(call say,Checking the build without fleets and recordings and API)
	@$(CARGO) clippy -p nervure-cli --bins --no-default-features --locked --quiet -- -D warnings
	@for target in armv7-unknown-linux-gnueabihf aarch64-unknown-linux-gnu; do \
	  if rustup target list --installed 2>/dev/null | grep -qx $$target; \
	  then $(CARGO) check -p nervure-cli -p nervure-c --no-default-features --locked --quiet --target $$target || exit; \
	  else echo "SKIPPED: no check for $$target (rustup target add $$target)"; fi; \
	done

test-rust: $(VENV)/.test ## Run the Rust tests, with real processes and kill -9
	$(call say,Running the Rust tests)
	@$(PROGRAMS)
	@$(NEXTEST) $(WITHOUT_CPP)
	@$(if $(CAN_BUILD_CPP),,echo "SKIPPED: nodes in C and C++, and dora's API: apt install g++ pkg-config")
	@$(CARGO) test --doc --workspace --all-features --locked --quiet

test-dora: $(VENV)/.test ## Run the tests of dora's API for Rust, C and C++, a workspace of its own
	$(call say,Running the tests of dora's API)
	@$(PROGRAMS)
	@$(if $(CAN_BUILD_CPP),cd compat/dora && $(PROGRAMS) && $(NEXTEST),echo "SKIPPED: apt install g++ pkg-config")
	@$(if $(CAN_BUILD_CPP),cd compat/dora && $(CARGO) test --doc --workspace --all-features --locked --quiet)

test-loom: ## Check every interleaving of the lock-free structures
	$(call say,Checking the lock-free structures under every interleaving (loom))
	@./scripts/loom.sh

test-asan: ## Run AddressSanitizer, if a nightly toolchain is installed
	$(call say,Running the tests of the crates with unsafe code under AddressSanitizer)
	@if $(CARGO) +nightly --version >/dev/null 2>&1; then ./scripts/asan.sh; \
	else echo "SKIPPED: AddressSanitizer needs a nightly toolchain (rustup toolchain install nightly)"; fi

# More tests at a time than cores: most of them wait for processes.
PYTEST = $(BIN)/python -m pytest -q -rs -n 4 --dist loadgroup --durations=5 --reruns 1 --max-suite-reruns 3 --rerun-show-tracebacks

test-python: $(VENV)/.installed-test $(VENV)/.test ## Run the tests of the Python package
	$(call say,Running the tests of the Python package)
	@$(PYTEST) bindings/python/tests

test-lab: $(VENV)/.installed-test $(VENV)/.test $(VENV)/.lab ## Run the tests of the lab
	$(call say,Running the tests of the lab)
	@NERVURE_LAB_PROGRAMS=$(CURDIR)/target/debug $(PYTEST) lab/tests

test-guides: $(VENV)/.installed-test $(VENV)/.test $(VENV)/.lab $(VENV)/.demo ## Run the guides and the examples as they are written
	$(call say,Running the guides and the examples as they are written)
	@$(PYTEST) tests

FAULTS = $(PROGRAMS) && PYTHONPATH=tests $(PYTHON) -m soak.injection

test-faults: ## Inject one fault into each of some hundred runs: a failing system call or a kill (MOST=, SEED=, CASE=)
	$(call say,Injecting one fault into each run: a failing system call or a kill)
	@$(FAULTS) $(if $(CASE),--case $(CASE),--brief --most $(or $(MOST),300) $(if $(SEED),--seed $(SEED)))

test-long: $(VENV)/.installed-test ## Inject every fault at every place, ASan on dora's API too, 20 minutes and 10,000 kills of the campaign, the examples in release, fuzzing (over an hour)
	$(call say,Injecting every fault: one in each run)
	@$(FAULTS) --known
	$(call say,Running the tests of all crates with unsafe code under AddressSanitizer)
	@./scripts/asan.sh --all
	$(call say,Running the fault campaign: 20 minutes of rounds; then 10000 kills)
	@$(MAKE) --no-print-directory soak
	@$(MAKE) --no-print-directory soak KILLS=10000
	$(call say,Building and running the examples with Rust nodes as they are written)
	@for example in hello control; do \
	  PKG_CONFIG_PATH="$(CURDIR)/$(VENV)/lib/pkgconfig" $(BIN)/nervure build examples/$$example/dataflow.yml || exit; \
	  VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/nervure run examples/$$example/dataflow.yml --stop-after 5s || exit; \
	done
	@$(MAKE) --no-print-directory fuzz

test-soak: $(VENV)/.installed-test ## Run the fault campaign for two minutes, then 300 kills
	$(call say,Running the fault campaign: two minutes of rounds; then 300 kills)
	@$(MAKE) --no-print-directory soak MINUTES=2
	@$(MAKE) --no-print-directory soak KILLS=300

soak: $(VENV)/.installed-test ## Run the fault campaign for 20 minutes (MINUTES=, SEED=, ROUND=, KILLS=10000): see docs/guides/faults.md
	@$(PROGRAMS)
	@PYTHONPATH=tests $(BIN)/python -m soak --python $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ROUND),--round $(ROUND)) $(if $(KILLS),--kills $(KILLS))

test-fuzz: ## Run every fuzz target for some seconds, if cargo-fuzz and a nightly toolchain are installed
	$(call say,Fuzzing the parsers of input from outside)
	@./scripts/fuzz.sh 5

fuzz: ## Run every fuzz target for a minute (cargo-fuzz, nightly toolchain)
	@./scripts/fuzz.sh 60

bench: $(VENV)/.installed-dist $(VENV)/.lab ## Measure Nervure beside its floors and its peers (25 minutes)
	$(call say,Measuring: floors, iceoryx2, dora and Nervure, interleaved)
	@$(BIN)/python -m nervure_lab run local --report docs/reference/performance.md

bench-setup: $(VENV)/.installed-dist $(VENV)/.lab ## Install the lab, which compares middlewares (nervure-lab --help)

bench-link: $(VENV)/.installed-dist $(VENV)/.lab ## Measure the link and its peers over an emulated link (140 minutes at most; RESUME=1 continues after an interruption; needs root)
	$(call say,Measuring over the emulated link: Nervure and TCP and UDP and peers, in turns)
	@$(BIN)/python -m nervure_lab run link $(if $(RESUME),--resume) --report docs/reference/link.md

wheel: $(VENV)/.zig ## Build a wheel with module, command, and the APIs for C and C++ into dist/, for this machine or ARCHITECTURES="x86_64 aarch64"
	$(call say,Building the wheel (profile dist) against the glibc of manylinux2014)
	@./scripts/wheel.sh $(ARCHITECTURES)

packages: ## Build a tarball and a Debian package with command, and the API for C and C++, into dist/
	$(call say,Building the tarball and the Debian package (profile dist))
	@$(PYTHON) scripts/packages.py dist

linkemu: $(VENV)/.linkemu ## Build nervure-linkemu, the emulated link, into .venv

asan: ## Run AddressSanitizer on the crates with unsafe code (nightly toolchain)
	@./scripts/asan.sh

miri: ## Run Miri on the crates with unsafe code, if it is installed
	@./scripts/miri.sh

clean: ## Remove all build results and environments
	rm -rf target $(VENV) out dist bindings/python/data

# The environment with Nervure in it: the module and the command.
$(VENV)/.created:
	$(call say,Creating the Python environment $(VENV))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "error: Python 3.10 or newer is needed, $(PYTHON) is older" >&2; exit 1; }
	@command -v $(CARGO) >/dev/null || { echo "error: Rust is needed: install it with rustup (https://rustup.rs)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "error: a C linker is needed: apt install gcc" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "error: Python cannot make environments here: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.tools: $(VENV)/.created
	$(call say,Installing the build tools (maturin and wheel))
	@$(PIP) install 'maturin>=1.9,<2' 'wheel>=0.42'
	@touch $@

$(VENV)/.zig: $(VENV)/.tools
	$(call say,Installing zig, which links against an old glibc and for other architectures)
	@$(PIP) install 'ziglang>=0.15' 'cargo-zigbuild>=0.22,<0.30'
	@touch $@

$(VENV)/.installed-demo: $(VENV)/.tools $(RUST_SOURCES) $(PYTHON_SOURCES)
	$(call say,Building Nervure: command and Python module)
	@$(call install,$(DEMO_BUILD))

$(VENV)/.installed-dist: $(VENV)/.tools $(RUST_SOURCES) $(PYTHON_SOURCES)
	$(call say,Building Nervure for measurements: command and Python module (8 minutes))
	@$(call install,$(DIST_BUILD))

$(VENV)/.installed-test: $(VENV)/.tools $(RUST_SOURCES) $(PYTHON_SOURCES)
	$(call say,Building Nervure for the tests: all programs and the Python module)
	@$(call install,$(TEST_BUILD))
	@install -m 755 target/debug/nervure-linkemu $(BIN)/nervure-linkemu

$(VENV)/.lab: $(VENV)/.created lab/pyproject.toml
	$(call say,Installing the lab)
	@$(PIP) install --editable lab
	@touch $@

# The emulated link is a target of its own, so that the demo does not wait for it.
$(VENV)/.linkemu: $(VENV)/.created $(RUST_SOURCES)
	$(call say,Building nervure-linkemu)
	@$(CARGO) build --release --locked -p nervure-linkemu
	@install -m 755 target/release/nervure-linkemu $(BIN)/nervure-linkemu
	@touch $@

$(VENV)/.demo: $(VENV)/.created examples/drive/requirements.txt
	$(call say,Installing the packages of the demo's nodes (OpenCV and imufusion))
	@$(PIP) install -r examples/drive/requirements.txt
	@touch $@

$(VENV)/.two-robots: $(VENV)/.created examples/two-robots/requirements.txt
	$(call say,Installing the packages of the example two-robots (OpenCV and Matplotlib))
	@$(PIP) install -r examples/two-robots/requirements.txt
	@touch $@

$(VENV)/.test: $(VENV)/.created requirements-test.txt
	$(call say,Installing the test tools (pytest and friends))
	@$(PIP) install -r requirements-test.txt
	@touch $@
