# Seekless: what is done often. `make` alone shows it.
#
# Nothing here calls sudo. As root, `make setup` installs the Debian packages that are missing; as any other user it
# prints the command that would, and goes on with what works.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=

# Lints come and go with compilers. Warnings are errors for the one that the project is developed with.
LINT_VERSION := 1.95
RUSTC_VERSION := $(shell rustc --version 2>/dev/null | cut -d' ' -f2)
DENY := $(if $(filter $(LINT_VERSION).%,$(RUSTC_VERSION)),-D warnings)

RUSTDOC := RUSTDOCFLAGS="$(DENY) -A rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --locked

# Seconds for each fuzz target, and minutes of `make soak`.
FUZZ_SECONDS ?= 60
SOAK_MINUTES ?= 60

# A fresh clone is built in large units, which takes a quarter less processor time than the small ones that are kept between builds.
# It stays so until a plain `cargo test` or `cargo build` builds it for development, all of it once more.
ONCE := $(if $(wildcard $(or $(CARGO_TARGET_DIR),target)/debug/incremental/*),,CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=16)

# Tests that mount wait most of their time: two run on each processor.
TEST_THREADS ?= $(or $(RUST_TEST_THREADS),$(shell echo $$((2 * $$(nproc)))))

.DEFAULT_GOAL := help
.PHONY: help setup build lint locks test demo fuzz soak mutants bench doc book deb deb-test tarball tarball-test wheel wheel-test release-check install uninstall

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (as root), or say what to install
	@scripts/setup.sh

build: setup ## the program, optimised: target/release/seekless
	$(CARGO) build --release --locked

lint: locks ## format and lints, those of the programmer's pages too
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path python/Cargo.toml
	$(ONCE) $(CARGO) clippy --workspace --all-targets --locked -- $(DENY)
	$(ONCE) $(RUSTDOC)
	@$(if $(DENY),,echo "note: rustc $(RUSTC_VERSION) is not $(LINT_VERSION).x, so lint warnings were not taken as errors")

# They are outside the workspace, so that nothing else notices when a dependency of the crates that they use has changed.
locks: ## the lock files of fuzz/, mutants/ and python/ are up to date
	@for apart in fuzz mutants python; do \
		$(CARGO) metadata --quiet --locked --format-version 1 --manifest-path $$apart/Cargo.toml >/dev/null \
			|| { echo "$$apart/Cargo.lock is out of date:  cargo metadata --manifest-path $$apart/Cargo.toml >/dev/null" >&2; exit 1; }; \
	done

test: setup lint ## everything that must pass: format, lints, all tests
	$(ONCE) SEEKLESS_SOAK=$${SEEKLESS_SOAK:-1} RUST_TEST_THREADS=$(TEST_THREADS) scripts/test.sh $(CARGO)

demo: build ## real files, a crash, recovery, a benchmark: about a minute after the build
	@scripts/demo.sh

fuzz: ## look for input that does harm, FUZZ_SECONDS=60 for each target
	@scripts/fuzz.sh $(FUZZ_SECONDS)

soak: ## the seeded tests with ever new seeds, SOAK_MINUTES=60
	@scripts/soak.sh $(SOAK_MINUTES)

mutants: ## small changes of the engine, each of which a test should notice: an hour or two
	@$(CARGO) run --quiet --locked --manifest-path mutants/Cargo.toml -- $(MUTANTS)

bench: ## speed of the engine
	$(CARGO) bench --workspace --locked

book: ## the book of docs/, as HTML: target/book/index.html
	@if command -v mdbook >/dev/null; then scripts/book.sh; else echo "docs/SUMMARY.md is the book as it is; for HTML: cargo install mdbook"; fi

doc: book ## the programmer's pages: target/doc/seekless/index.html
	$(ONCE) $(RUSTDOC)

deb: build ## a Debian package in target/
	@scripts/deb.sh

deb-test: deb ## the package in a fresh Debian: installed, used, removed (as root, with debootstrap)
	@scripts/deb-test.sh

tarball: ## the program for any Linux, linked statically, in target/
	@scripts/tarball.sh

tarball-test: tarball ## the tarball where there is nothing else: used, and mounted (as root)
	@scripts/tarball-test.sh

wheel: ## a wheel for Python in target/wheels, with the program inside
	@scripts/wheel.sh

wheel-test: wheel ## the wheel in a fresh virtual environment: installed, tested, the notebook executed
	@scripts/wheel-test.sh

release-check: ## everything that must be right before a version gets its tag (as root, for hours)
	@scripts/release-check.sh

install: build ## program, manual pages, completions and experiments, under PREFIX=/usr/local
	@scripts/install.sh "$(DESTDIR)$(PREFIX)"

uninstall: ## what `make install` installed
	@scripts/install.sh --remove "$(DESTDIR)$(PREFIX)"
