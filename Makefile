# `make help` lists the targets. Nothing has to be installed or activated first: each target sets up
# .venv from requirements.lock if it is missing or out of date.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
# One thread a process: on small models two runs side by side beat one run with two threads.
RUN := OMP_NUM_THREADS=1 $(BIN)/python
# Your numbers next to the published ones; results/ is only read.
YOURS := $(RUN) scripts/report.py yours=runs/results
# Makes the tables even if runs have failed, and exits with the status of the runs.
COMPARE = status=$$?; $(YOURS) $(1) || status=1; exit $$status
EMBEDDED := figure1 figure4 table2 theorems digits chains

# An extension that is not installed: its folders of modules and of configurations.
BENCH := PYTHONPATH=benchmarks PHANTOMGRAD_CONFIG_PATH=benchmarks/configs

# Several runs at once, each in a process of its own.
PARALLEL := cluster=local runtime.cluster.jobs=$(WORKERS)

# SCALE=cpu: the CPU edition of a table, in hours of two cores.
TRAIN := $(RUN) scripts/train.py table=
# At full size a run has the GPUs that its row asks for, and as many run as fit.
MANY := $(if $(SCALE),scale=$(SCALE) $(PARALLEL),cluster=local)
# The first line of recipes that do not know it, in which it would be ignored.
ONE_SIZE = $(if $(SCALE),$(error $@ has no smaller edition: leave out SCALE=$(SCALE)))

.DEFAULT_GOAL := help
.PHONY: help env test lint reproduce reproduce-figure1 reproduce-figure2 reproduce-figure3 reproduce-figure4 \
  reproduce-table1 reproduce-table2 reproduce-table3 reproduce-table3-vision reproduce-table3-language \
  reproduce-table3-imagenet reproduce-table4 reproduce-table4-ppi reproduce-reasoning tune data status \
  dashboard report publish throughput bench gpu-check verify soak docs lock clean

##@ Start here

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {print "\n" substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-26s %s\n", $$1, $$2}' Makefile
	@echo "SCALE=cpu shrinks tables 1, 3 and 4 (PPI), figures 2 and 3: they take about 29, 16, 0.7, 5 and 14 hours of a core (data: docs/data.md)."

env: .venv/.ready ## Set up .venv (Python 3.11 to 3.14, everything pinned)

.venv/.ready: requirements.lock pyproject.toml suite/pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 14) or sys.exit("Python 3.11 to 3.14 is supported, this is %d.%d: make PYTHON=python3.12 ..." % v)'
	@echo "setting up .venv from requirements.lock (about two minutes) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable . --editable ./suite
	@touch $@

reproduce: env ## The main job, no download: studies, digits, Chains; ends with runs/results/index.html
	@$(ONE_SIZE)
	@status=0; started=$$(date +%s); \
	  $(RUN) scripts/study.py study=figure4/linear || status=1; \
	  $(YOURS) figure4 > /dev/null && echo "first pictures: runs/results/index.html, Figure 4"; \
	  $(RUN) scripts/study.py study='figure1/quick,figure4/*,table2/cpu,theorems/*' $(PARALLEL) || status=1; \
	  $(RUN) scripts/train.py table=digits $(PARALLEL) || status=1; \
	  $(RUN) scripts/train.py table=chains $(PARALLEL) || status=1; \
	  $(YOURS) $(EMBEDDED) || status=1; \
	  echo "total $$(( $$(date +%s) - started )) s; the page: runs/results/index.html"; exit $$status

data: env ## Fetch data sets that are not included: DATA="CIFAR10 PPI" (without network: FROM=folder)
	@$(RUN) scripts/fetch_data.py $(DATA) $(if $(FROM),--from "$(FROM)")

##@ The paper

# Rows that train, each table at full size or at a SCALE.
$(addprefix reproduce-,table1 table3-vision table3-language table4-ppi figure2 figure3): reproduce-%: env
	@$(TRAIN)$(subst -,_,$*) $(MANY); $(call COMPARE,$(firstword $(subst -, ,$*)))

reproduce-figure1: STUDIES = figure1/*,!figure1/quick
reproduce-figure4: STUDIES = figure4/*
reproduce-figure1 reproduce-figure4: reproduce-%: env
	@$(ONE_SIZE)
	@$(RUN) scripts/study.py study='$(STUDIES)' $(PARALLEL); $(call COMPARE,$*)

reproduce-table1: ## Table 1: MDEQ-Tiny on CIFAR-10 (GPU; first: make data DATA=CIFAR10)

reproduce-table2: env ## Table 2: time and memory of the gradients
	@$(ONE_SIZE)
	@$(RUN) scripts/study.py study=table2/cpu; $(call COMPARE,table2)

reproduce-table3: reproduce-table3-vision reproduce-table3-language $(if $(SCALE),,reproduce-table3-imagenet) ## Table 3: the three targets below (with SCALE=cpu without ImageNet)

reproduce-table3-vision: ## Table 3: MDEQ-Large on CIFAR-10 (GPU; first: make data DATA=CIFAR10)
reproduce-table3-language: ## Table 3: WikiText-103 (4 GPUs; first: make data DATA=WikiText103)
reproduce-table3-imagenet: env ## Table 3: MDEQ-Small on ImageNet (8 GPUs; first: make data DATA=ImageNet)
	@$(ONE_SIZE)
	@$(RUN) scripts/train.py table=table3_imagenet cluster=local; $(call COMPARE,table3)

reproduce-table4: env $(if $(SCALE),reproduce-table4-ppi) ## Table 4: COX2 and PROTEINS, ten folds of one seed (5 h of a core, data included; MORE=1: four other seeds, 15 h)
	@$(RUN) scripts/train.py table=table4$(if $(MORE),_seeds) $(PARALLEL); $(call COMPARE,table4)

reproduce-table4-ppi: ## Table 4: PPI (GPU; first: make data DATA=PPI)
reproduce-figure1: ## Figure 1 in full: 50,000 pairs with tanh, 10,000 with relu and linear (5 min on a core)
reproduce-figure2: ## Figure 2: precision and spectral radii along training of MDEQ-Tiny (GPU; first: make data DATA=CIFAR10)
reproduce-figure3: ## Figure 3: k and λ, UPG against NPG, with MDEQ-Tiny (GPU; first: make data DATA=CIFAR10)
reproduce-figure4: ## Figure 4: gradient solvers under ill-conditioning

reproduce-reasoning: env ## Which gradient trains a recursive reasoner (about 10 h of a core)
	@$(ONE_SIZE)
	@status=0; for table in reasoning reasoning_few hierarchy looped; do \
	    $(RUN) scripts/train.py table=$$table $(PARALLEL) || status=1; \
	  done; \
	  for study in scaling/sudoku6 scaling/sudoku6_eqr settling/sudoku6_halting; do \
	    row=reasoning/$${study#*/}; $(RUN) scripts/study.py -m study=$${study%/*} \
	      run=$$row/seed0,$$row/seed1,$$row/seed2 $(PARALLEL) || status=1; \
	  done; \
	  $(YOURS) reasoning hierarchy looped scaling settling || status=1; exit $$status

##@ Runs and results

tune: env ## Tune λ on COX2, on validation data (17 min on a core). TUNE=lambda: on the digits
	@$(RUN) scripts/train.py tune=$(or $(TUNE),lambda_cox2); $(call COMPARE,tune)

status: env ## The state of all runs, by table (TABLE=table1: its rows; FAILED=1: errors)
	@$(BIN)/python scripts/status.py $(if $(TABLE),--table $(TABLE)) $(if $(FAILED),--failed)

dashboard: env ## Curves of the runs in TensorBoard, at http://localhost:6006 (PORT=6007, RUNS=folder)
	@$(BIN)/tensorboard --logdir "$(or $(RUNS),runs)" --port $(or $(PORT),6006)

report: env ## Rebuild the published tables and figures from results/records (yours: scripts/report.py yours=runs/results)
	@$(RUN) scripts/report.py

publish: env ## Make your records the published ones (from clean checkouts only), with tables and page
	@$(RUN) scripts/publish.py

throughput: ON_CPU := throughput/cpu,throughput/language_cpu,throughput/fast_cpu
throughput: env ## Seconds per training step on synthetic batches (GPU: STUDY=throughput/table3_vision)
	@$(RUN) scripts/study.py study=$(or $(STUDY),$(ON_CPU)); $(call COMPARE,throughput table3)

bench: env ## Time and memory, side by side with torchdeq 0.1.0 and with the last bench on this processor
	@rm -rf runs/torchdeq; $(BENCH) $(RUN) scripts/study.py study=torchdeq
	@$(RUN) benchmarks/history.py runs/torchdeq/cpu/seed0/record.json

gpu-check: env ## The first half hour on a GPU: its tests, throughput in fp32 and TF32, Table 2, the bench, MDEQ-Large
	@$(RUN) -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "gpu-check needs a CUDA device, torch finds none")'
	@status=0; $(RUN) -m pytest -q tests/library/test_cuda.py || status=1; \
	  for study in throughput/table3_vision throughput/table3_language; do \
	    $(RUN) scripts/study.py study=$$study || status=1; \
	    $(RUN) scripts/study.py study=$$study setting.matmul_precision=high || status=1; \
	    $(RUN) scripts/study.py study=$$study setting.matmul_precision=high \
	      setting.compile=reduce-overhead || status=1; \
	  done; \
	  $(RUN) scripts/study.py study=table2/cuda || status=1; \
	  $(BENCH) $(RUN) scripts/study.py study=torchdeq device=cuda || status=1; \
	  $(RUN) scripts/train.py experiment=table3/cifar10_upg_first_epochs || status=1; \
	  $(YOURS) throughput table2 table3 || status=1; exit $$status

verify: env ## Evaluate the released models (results/weights) and compare with their records (FROM=folder of data)
	@$(RUN) scripts/verify.py $(if $(FROM),--data "$(FROM)")

##@ Development

docs: env ## Build the documentation and run its examples: site/index.html (opens without a server)
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet
	@echo "site/index.html"

test: env ## Run the tests (6 to 7 min on two cores)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: env ## Format, lint, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --strict --config-file= --cache-dir=.mypy_cache/user tests/suite/package/user.py
	@$(BIN)/lint-imports

soak: env ## Kill, stop and damage small runs at random moments; they must resume (KILLS=100, 5 to 10 min)
	@$(RUN) -W ignore benchmarks/soak.py $(or $(KILLS),100)

lock: env ## Write requirements.lock from what is installed in .venv
	@$(RUN) scripts/lock.py

clean: ## Remove .venv and caches (runs, data and results stay)
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
