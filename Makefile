# README's two commands are here: `make demo` and `make test`. Everything they need they install themselves, outside the
# tree, under $XDG_CACHE_HOME; both may be run again and again.

PYTHON ?= python3
VENV   := $(shell $(PYTHON) scripts/venv.py --path)
BIN    := $(VENV)/bin
STEP   := scripts/step
# What tools remember between runs stays out of the tree, which may be read-only.
CACHE  := $(VENV)-tools
PYTEST := "$(BIN)/python" -m pytest -o "cache_dir=$(CACHE)/pytest"
CRDS   := charts/slurm-operator-crds/templates

export PYTHONPATH := src:.
# Without compiled modules each of the many processes of a test run would compile the operator first.
export PYTHONPYCACHEPREFIX := $(CACHE)/bytecode
# Set in many containers to keep modules out of a tree: here they are outside of it.
unexport PYTHONDONTWRITEBYTECODE
export RUFF_CACHE_DIR := $(CACHE)/ruff
export MYPY_CACHE_DIR := $(CACHE)/mypy
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis

.DEFAULT_GOAL := help
.PHONY: help venv kube slurm images test unit check check-static check-tests explore test-long lint commits format bench faults torture demo demo-down release release-check crds charts lock clean

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

venv: ## the python environment, made once
	@$(PYTHON) scripts/venv.py >/dev/null

kube: venv ## kube-apiserver, etcd, kwok and helm, built once
	@$(STEP) "kubernetes binaries" "$(BIN)/python" -m kubebox build

slurm: venv ## the root file systems of Slurm, made once
	@$(STEP) "slurm root file systems" "$(BIN)/python" -m kubebox slurm build

# Only root can run the nodes that need them.
images: kube slurm ## container images of Slurm and of the operator, made once
	@if [ "$$(id -u)" -eq 0 ]; then $(STEP) "container images" "$(BIN)/python" scripts/images.py; fi

# Tests in these folders build what they need when pytest has collected them, or need nothing.
LIGHT  := tests/unit tests/unit/% tests/integration/api tests/integration/api/% tests/integration/kube tests/integration/kube/%
NAMED  := $(filter tests/%,$(PYTEST_ARGS))
NEEDED := $(if $(NAMED),$(if $(filter-out $(LIGHT),$(NAMED)),kube slurm images,venv),kube slurm images)

test: $(NEEDED) ## all tests, against a real Kubernetes and a real Slurm (PYTEST_ARGS: some, in one process)
	@$(if $(PYTEST_ARGS),,$(STEP) "chart tests" "$(BIN)/python" scripts/charts.py test)
	@$(STEP) "tests" $(if $(PYTEST_ARGS),,"$(BIN)/python" scripts/suite.py $(if $(REPORTS),--reports "$(REPORTS)")) $(PYTEST) $(PYTEST_ARGS)

explore: venv ## the property tests with fresh seeds and many more cases (EXPLORE_FACTOR=20 times as many)
	@HYPOTHESIS_PROFILE=explore $(STEP) "property tests, explored" $(PYTEST) -m hypothesis --timeout=0 tests/unit $(PYTEST_ARGS)

test-long: kube slurm images ## the tests that take many minutes each: more repetitions, and times as long as usual clusters have
	@$(STEP) "long tests" $(PYTEST) -m long tests/e2e tests/integration $(PYTEST_ARGS)

unit: venv ## only the tests that need no server, in two processes (PYTEST_ARGS: options, in one)
	@$(STEP) "unit tests" $(if $(PYTEST_ARGS),$(PYTEST) tests/unit $(PYTEST_ARGS),"$(BIN)/python" scripts/suite.py --only unit,unit-clients $(PYTEST) -q)

check: venv ## after a small change: format, lint rules, types, layers, counts, and the unit tests it concerns
	@$(STEP) "check" $(MAKE) --no-print-directory --jobs=2 --output-sync=target check-static check-tests

check-static:
	@"$(BIN)/ruff" format --check --quiet . || { echo "to format: make format"; exit 1; }
	@"$(BIN)/ruff" check --quiet .
	@"$(BIN)/mypy" --no-error-summary
	@"$(BIN)/lint-imports" --cache-dir "$(CACHE)/import-linter" >"$(CACHE)/layers" || { cat "$(CACHE)/layers"; exit 1; }
	@"$(BIN)/python" scripts/counts.py

check-tests:
	@"$(BIN)/python" scripts/check.py $(PYTEST)

lint: venv ## formatting, lint rules, types, layers, counts, generated files
	@$(STEP) "format" "$(BIN)/ruff" format --check .
	@$(STEP) "lint rules" "$(BIN)/ruff" check .
	@$(STEP) "types" "$(BIN)/mypy"
	@$(STEP) "layers" "$(BIN)/lint-imports" --cache-dir "$(CACHE)/import-linter"
	@$(STEP) "counts have not grown" "$(BIN)/python" scripts/counts.py
	@$(STEP) "generated CRDs are fresh" "$(BIN)/python" -m slurm_operator.api.schema --check $(CRDS)
	@$(STEP) "generated reference is fresh" "$(BIN)/python" -m slurm_operator.api.reference --check docs/reference/api.md
	@$(STEP) "charts" "$(BIN)/python" scripts/charts.py lint
	@$(STEP) "values in the charts' READMEs are fresh" "$(BIN)/python" scripts/charts.py values
	@$(STEP) "package builds" sh scripts/check-package "$(BIN)/python"

commits: ## the messages of new commits
	@$(STEP) "commit messages" $(PYTHON) scripts/commits.py

format: venv ## rewrite the sources in the project's format
	@"$(BIN)/ruff" format . && "$(BIN)/ruff" check --fix .

bench: kube slurm ## measure the runtime, the Slurm client and NodeSets at scale; tables, and JSON under bench/results
	@$(STEP) "bench runtime" "$(BIN)/python" -m bench.runtime $(BENCH_ARGS)
	@$(STEP) "bench slurm" "$(BIN)/python" -m bench.slurm $(BENCH_SLURM_ARGS)
	@$(STEP) "bench fairness" "$(BIN)/python" -m bench.fairness $(BENCH_FAIRNESS_ARGS)
	@$(STEP) "bench nodeset" "$(BIN)/python" -m bench.nodeset $(BENCH_NODESET_ARGS)
	@$(STEP) "bench clusters" "$(BIN)/python" -m bench.clusters $(BENCH_CLUSTERS_ARGS)
	@$(STEP) "bench autoscaling" "$(BIN)/python" -m bench.autoscaling $(BENCH_AUTOSCALING_ARGS)
	@$(STEP) "bench status page" "$(BIN)/python" -m bench.status_page $(BENCH_STATUS_ARGS)
	@$(STEP) "bench command" "$(BIN)/python" -m bench.command $(BENCH_COMMAND_ARGS)

faults: kube ## the operator in the fault lab: crashes at every write, old and withheld views, every property (an hour or two)
	@"$(BIN)/python" scripts/faults.py full "$(CACHE)/faults" $(FAULTS_ARGS)

torture: images ## a Slurm on real nodes with jobs all the time, under random actions and faults (MINUTES=10 SEED=1)
	@"$(BIN)/python" -m faultlab.torture --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) --report "$(CACHE)/torture"

# A cluster of yours only where it is named on make's command line: one in the environment may be anybody's.
THERE := $(if $(findstring command,$(origin KUBECONFIG)),--kubeconfig "$(KUBECONFIG)" $(if $(OPERATOR_IMAGE),--operator-image "$(OPERATOR_IMAGE)") $(if $(VALUES),--values "$(VALUES)"))

# It builds what it needs by itself, which is less than the tests do.
demo: venv ## a whole Slurm on a real Kubernetes (KEEP=1 leaves it running, KUBECONFIG=FILE: on a cluster of yours)
	@"$(BIN)/python" scripts/demo.py $(if $(KEEP),--keep) $(THERE)

demo-down: venv ## remove what `make demo KEEP=1` left running
	@"$(BIN)/python" scripts/demo.py --down $(THERE)

release: venv ## archives of images, charts, wheel, manifests, SBOMs and checksums in dist/release (REGISTRY=…: where they will be published; needs root)
	@"$(BIN)/python" -m scripts.release.build $(if $(REGISTRY),--registry "$(REGISTRY)") $(if $(OUTPUT),--output "$(OUTPUT)")

# It uses the artifacts alone, and builds them if there are none.
release-check: venv ## install and upgrade from the artifacts of `make release`: a registry, a cluster, helm from OCI, jobs (needs root)
	@"$(BIN)/python" -m scripts.release.check $(if $(OUTPUT),--release "$(OUTPUT)") $(CHECK_ARGS)

crds: venv ## write the CRDs and docs/reference/api.md from the structs in src/slurm_operator/api
	@"$(BIN)/python" -m slurm_operator.api.schema --write $(CRDS)
	@"$(BIN)/python" -m slurm_operator.api.reference --write docs/reference/api.md

charts: venv ## write the tables of values in the charts' READMEs from values.yaml
	@"$(BIN)/python" scripts/charts.py values --write

lock: ## pin the requirements again (needs the network and uv)
	@sh scripts/lock

clean: ## remove what tools leave in the tree
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -prune -exec rm -rf {} +
