# Everything a person or CI does in a checkout. Needs Python 3.11+, make, git and a package index.
# Every target sets up what it needs; `make help` lists them.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/sh
BIN := .venv/bin

# --- set-up -----------------------------------------------------------------------------------------
# The stamp's name holds what decides between the CPU and the CUDA builds of JAX, and its
# prerequisites what decides the rest, so that set-up runs when one of them changes and not otherwise.
DRIVER := $(if $(wildcard /dev/nvidiactl /dev/dxg),driver,nodriver)
STAMP := .venv/.setup-$(or $(REACTANT_GPU),auto)-$(or $(REACTANT_GPU_VERSION),auto)-$(DRIVER)
PROJECTS := $(wildcard pyproject.toml */pyproject.toml services/*/pyproject.toml)

.PHONY: help setup
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv from uv.lock (REACTANT_GPU=cuda|cpu, REACTANT_GPU_VERSION=12|13 choose the JAX build)

$(STAMP): uv.lock $(PROJECTS) tools/setup.py tools/uv.py tools/accelerator.py tools/find-python
	@python=$$(tools/find-python) && "$$python" -m tools.setup $@

# --- run --------------------------------------------------------------------------------------------
.PHONY: run demo bundles bench
run: setup ## Build the demo models if there are none, then serve them: gRPC on 8001, health and metrics on 8002
	@if [ -z "$$INFERENCE_SERVER_MODEL_DIRS" ]; then $(BIN)/python -m reactant_examples.build --out bundles; fi
	@INFERENCE_SERVER_MODEL_DIRS="$${INFERENCE_SERVER_MODEL_DIRS:-$(CURDIR)/bundles}" \
	 INFERENCE_SERVER_CACHE_DIR="$${INFERENCE_SERVER_CACHE_DIR:-$(CURDIR)/.cache/programs}" \
	 exec $(BIN)/reactant-supervisor

bundles: setup ## Build the demo models into bundles/
	@$(BIN)/python -m reactant_examples.build --out bundles

demo: setup ## Ask the running server to rank sentences by similarity
	@$(BIN)/python -m reactant_examples.demo

bench: setup ## Measure what this machine allows, against the peers it has
	@$(BIN)/python benchmarks/run.py $(ARGS)

.PHONY: bench-peers
bench-peers: setup ## Install the servers that the worker is measured against, into .cache/peers
	@$(BIN)/python -m benchmarks.peers.environments

.PHONY: compiled
compiled: setup ## Compile the gateway's data plane to C; prints the folder to put on PYTHONPATH
	@$(BIN)/python -m tools.compile_gateway

# --- test -------------------------------------------------------------------------------------------
# Tests that look at no clock but their own run side by side; those of whole processes one by one, since
# they judge how long something took.
SIDE_BY_SIDE := proto policy core programs cli export
ONE_BY_ONE := services examples tools tests

.PHONY: test
test: setup ## Run the tests (ARGS="-k word -x" is handed to pytest)
ifneq ($(ARGS),)
	@$(BIN)/pytest $(ARGS)
else
	@status=0; \
	 $(BIN)/pytest --numprocesses auto --dist loadfile $(SIDE_BY_SIDE) || status=$$?; \
	 $(BIN)/pytest $(ONE_BY_ONE) || status=$$?; \
	 exit $$status
endif

.PHONY: fuzz
fuzz: setup ## Send a gateway 100,000 malformed inputs (ARGS="--inputs 1000 --seed x")
	@$(BIN)/python -m tests.fuzz $(ARGS)

# --- image ------------------------------------------------------------------------------------------
ENGINE ?= docker
.PHONY: image
image: ## Build the node's container image (REACTANT_GPU=cuda for GPUs; ENGINE=podman)
	@$(ENGINE) build -f deploy/docker/node.Dockerfile -t reactantserver$(if $(filter cuda,$(REACTANT_GPU)),:cuda) \
	  --build-arg REACTANT_GPU="$(or $(REACTANT_GPU),cpu)" --build-arg REACTANT_GPU_VERSION="$(REACTANT_GPU_VERSION)" \
	  --build-arg HOOK_PACKAGES="$(or $(HOOK_PACKAGES),tokenizers)" \
	  --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" .

# --- check ------------------------------------------------------------------------------------------
CHECKS := format lint types walls proto links lengths lock
FIXES := format lint proto lock
PACKAGES := $(patsubst %/,%,$(wildcard */src/ services/*/src/))
has_code = $(if $(wildcard $(1)/*.py $(1)/*/*.py),$(1))
TEST_FOLDERS := $(foreach folder,$(wildcard */tests services/*/tests tests benchmarks),$(call has_code,$(folder)))
empty :=
space := $(empty) $(empty)

.PHONY: check fix $(CHECKS:%=check-%) $(FIXES:%=fix-%)
check: setup ## Run every check below and say which failed
	@failed=; for name in $(CHECKS); do \
	   if output=$$($(MAKE) --no-print-directory check-$$name 2>&1); then echo "ok      check-$$name"; \
	   else echo "FAILED  check-$$name"; echo "$$output" | grep -v '^make\['; failed="$$failed check-$$name"; fi; \
	 done; \
	 if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

fix: setup $(FIXES:%=fix-%) ## Repair what can be repaired without thought

check-format: setup ## Code is formatted (ruff)
	@$(BIN)/ruff format --quiet --diff .
fix-format: setup ## Format the code
	@$(BIN)/ruff format .

check-lint: setup ## Code follows the lint rules (ruff)
	@$(BIN)/ruff check .
fix-lint: setup ## Repair lint faults that have a safe repair
	@$(BIN)/ruff check --fix .

check-types: setup ## Types hold (mypy, strict)
	@MYPYPATH=$(subst $(space),:,$(PACKAGES)) $(BIN)/mypy $(PACKAGES) tools $(filter-out tools/tests,$(TEST_FOLDERS))

check-walls: setup ## No import crosses a wall (import-linter, .importlinter), nor goes around one
	@$(BIN)/lint-imports --no-logo --cache-dir .cache/import-linter
	@$(BIN)/python -m tools.loopholes

check-proto: setup ## Generated stubs are what the .proto files give
	@$(BIN)/python proto/generate.py --check
fix-proto: setup ## Generate the stubs anew
	@$(BIN)/python proto/generate.py

check-links: setup ## Links between Markdown files lead somewhere
	@$(BIN)/python -m tools.links

check-lengths: setup ## No file is over 600 lines
	@$(BIN)/python -m tools.lengths

check-lock: setup ## uv.lock matches the pyproject.toml files
	@$(BIN)/python -m tools.uv lock --check --quiet
# Not after set-up, which refuses a lock that is out of date.
fix-lock: ## Bring uv.lock up to date with the pyproject.toml files
	@python=$$(tools/find-python) && "$$python" -m tools.uv lock

.PHONY: proto clean distclean
proto: fix-proto ## Generate the stubs from the .proto files

clean: ## Remove what was built: demo models, compiled programs, tool caches
	@rm -rf bundles dist .cache/programs .cache/import-linter .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## Remove the environment as well
	@rm -rf .venv .cache
