# nagle-lab. `make` or `make help` lists what there is; the work itself is in setup/ and analysis/.
# Variables on the command line (REQUESTS=200 …) reach nagle-lab through the environment, and so do their names, among
# which it looks for misspelled ones.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

export NAGLE_LAB_MAKE_VARIABLES := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))

bin := .venv/bin
# On six workers, because tests of the guard and of the lab wait for most of their time; in the order of
# tests/support/turns.py.
pytest := $(bin)/pytest -c analysis/pyproject.toml --rootdir=. -rs -n 6 --dist=loadfile --no-loadscope-reorder

##@ The lab (sets up what is missing: Docker, the base image, .venv)

.PHONY: repro-nodelay-off
repro-nodelay-off: lab-ready ## reproduce the stall with nginx and prove it; TRACE=1 names the two writes
	@$(bin)/nagle-lab run nginx-static nodelay-off $(if $(TRACE),--trace)

.PHONY: repro-nodelay-on
repro-nodelay-on: lab-ready ## the same with TCP_NODELAY on: show it gone
	@$(bin)/nagle-lab run nginx-static nodelay-on $(if $(TRACE),--trace)

.PHONY: repro
repro: scenario-named lab-ready ## any variant: make repro SCENARIO=nginx-static VARIANT=no-keepalive
	@$(bin)/nagle-lab run "$$SCENARIO" "$$VARIANT" $(if $(TRACE),--trace)

.PHONY: compare
compare: ## stalled and fixed side by side, the newest runs or new ones: SCENARIO=redis-proxy, VARIANTS="A B", AGAIN=1 makes new ones
	@setup/python.sh
	@scenario=$${SCENARIO:-nginx-static}; pair=$$($(bin)/nagle-lab list "$$scenario" --pair); \
	runs=(); for variant in $${VARIANTS:-$$pair}; do \
	  run=captures/runs/latest-$$scenario-$$variant; runs+=("$$run"); \
	  if [[ -z "$${AGAIN:-}" && -e $$run/result.json ]]; then echo "$$variant: the newest run, $$(readlink "$$run")"; \
	  else $(MAKE) lab-ready; echo "$$variant: running it"; \
	    $(bin)/nagle-lab run "$$scenario" "$$variant" --json >/dev/null || (($$? == 1)); fi; done; \
	$(bin)/nagle-lab compare "$${runs[@]}"

.PHONY: matrix
matrix: lab-ready ## every scenario × variant, a table of each: REPEAT=3 times, SCENARIO=… for one alone
	@$(bin)/nagle-lab matrix $${SCENARIO:-} --repeat "$${REPEAT:-1}"

.PHONY: sweep
sweep: scenario-to-sweep lab-ready ## where a stall begins and ends: make sweep SCENARIO=redis-proxy SIZE=64..16384
	@$(bin)/nagle-lab sweep "$$SCENARIO" $${SIZE:+"size=$$SIZE"}

.PHONY: demo
demo: $(if $(WITHOUT_LAB)$(SLIDES),,lab-ready) ## the workshop: SCENARIO=redis-proxy for one incident, WITHOUT_LAB=1 where there is no Docker, SLIDES=FILE writes slides
	@setup/python.sh
	@$(bin)/nagle-lab demo $${SCENARIO:+--scenario "$$SCENARIO"} $${ANSWERS:+--answers "$$ANSWERS"} $${SLIDES:+--slides "$$SLIDES"} $(if $(WITHOUT_LAB),--without-lab)

.PHONY: museum
museum: ## released software that stalls, and its fix, run again: EXHIBIT=pypi/hypercorn runs one; a run of all writes docs/museum.md; TRACE=1 names the two writes
	@setup/python.sh
	@$(bin)/nagle-lab museum $${EXHIBIT:-} $(if $(QUICK),--quick) $(if $(TRACE),--trace) \
	  $(if $(EXHIBIT)$(QUICK),,--markdown docs/museum$(if $(TRACE),-writes).md)

.PHONY: list
list: ## the scenarios and their variants; SCENARIO=redis-proxy for one, with its parameters
	@setup/python.sh
	@$(bin)/nagle-lab list $${SCENARIO:+"$$SCENARIO"}

##@ The project

.PHONY: setup
setup: lab-ready ## set up everything, for the lab and for the tests
	@setup/python.sh dev
	@setup/tools.sh

.PHONY: test
test: setup ## all tests, fast ones first: unit, reference captures, hostile input, the guard, the lab on Docker
	@$(pytest) tests/unit tests/reference tests/hostile tests/guard tests/lab

.PHONY: test-unit
test-unit: ## unit tests only: no Docker, about two minutes
	@setup/python.sh dev
	@$(pytest) tests/unit

.PHONY: accuracy
accuracy: ## truth × verdict over all committed captures, by family, and every segment against socket timestamps
	@setup/python.sh
	@PYTHONPATH=tests $(bin)/python bench/accuracy.py

.PHONY: fuzz
fuzz: SECONDS ?= 600
fuzz: ## coverage-guided fuzzing, from a file's bytes to its verdict: make fuzz SECONDS=600
	@setup/python.sh dev
	@$(bin)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r analysis/requirements-fuzz.txt
	@mkdir -p tests/fuzz/.corpus tests/fuzz/.found
	@# In rounds, because the fuzzer's own memory grows by some 10 MB a second.
	@end=$$((EPOCHSECONDS + $(SECONDS))); while ((left = end - EPOCHSECONDS, left > 0)); do \
	  $(bin)/python tests/fuzz/fuzz_capture.py -max_total_time=$$((left < 120 ? left : 120)) -max_len=8192 -timeout=20 \
	    -rss_limit_mb=4096 -artifact_prefix=tests/fuzz/.found/ -print_final_stats=1 tests/fuzz/.corpus; done

.PHONY: bench
bench: ## speed and memory beside tcptrace, tshark, dpkt, pyshark: PACKETS=2000000; LONG=1 goes on to 20 million
	@setup/python.sh dev
	@$(bin)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r analysis/requirements-bench.txt
	@$(bin)/python bench/run.py $${PACKETS:-2000000} $(if $(LONG),--long)

.PHONY: lint
lint: ## ruff, mypy (strict), shellcheck; proselint on the pages
	@setup/python.sh dev
	@cd analysis && ../$(bin)/ruff check . ../tests ../bench ../scenarios ../docs ../maintenance ../museum ../site
	@cd analysis && ../$(bin)/ruff format --check . ../tests ../bench ../scenarios ../docs ../maintenance ../museum ../site
	@MYPYPATH=maintenance $(bin)/mypy --config-file analysis/pyproject.toml -p nagle_lab -p soak -p supply_chain
	@MYPYPATH=maintenance/recorder:maintenance/random:maintenance/stacks $(bin)/mypy --config-file analysis/pyproject.toml \
	  maintenance/recorder/*.py maintenance/stacks/*.py
	@MYPYPATH=maintenance/recorder:maintenance/random:tests $(bin)/mypy --config-file analysis/pyproject.toml maintenance/random/*.py
	@MYPYPATH=maintenance/recorder:maintenance/stacks:site $(bin)/mypy --config-file analysis/pyproject.toml site/*.py
	@setup/shell-scripts.sh | xargs -0 $(bin)/shellcheck --external-sources --source-path=SCRIPTDIR
	@git ls-files -z '*.md' | xargs -0 $(bin)/proselint check --config docs/proselint.json

.PHONY: site
site: ## build the simulator, the analyzer for a browser and the docs into public/, for any static host: INTO=FOLDER
	@setup/python.sh
	@PYTHONPATH=maintenance/recorder:maintenance/stacks $(bin)/python site/build.py "$${INTO:-public}"
	@echo "python3 -m http.server -d $${INTO:-public}    # then open http://localhost:8000"

.PHONY: docs
docs: ## write the output shown in the pages again, from the commands that made it
	@setup/python.sh
	@$(bin)/python docs/refresh.py

.PHONY: clean
clean: ## remove the lab's leftover containers, its images, .venv, caches and public/ (keeps captures)
	@setup/clean.sh

.PHONY: clean-runs
clean-runs: ## remove the recorded runs, captures/runs (keeps captures/reference)
	@setup/clean.sh runs

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { n = split($$2, words, " "); line = sprintf("  make %-18s", $$1); \
	    for (i = 1; i <= n; i++) { \
	      if (length(line) + 1 + length(words[i]) > 100) { print line; line = sprintf("%25s", "") } \
	      line = line " " words[i] } \
	    print line }' $(MAKEFILE_LIST)

.PHONY: lab-ready
lab-ready:
	@setup/engine.sh
	@setup/base-image.sh
	@setup/python.sh

.PHONY: scenario-named
scenario-named:
	@[[ -n "$${SCENARIO:-}" && -n "$${VARIANT:-}" ]] || \
	  { echo "make repro: name both, as in: make repro SCENARIO=nginx-static VARIANT=nodelay-off (make list names them)" >&2; exit 2; }

.PHONY: scenario-to-sweep
scenario-to-sweep:
	@[[ -n "$${SCENARIO:-}" ]] || { echo "make sweep: name one, as in: make sweep SCENARIO=redis-proxy (make list names them)" >&2; exit 2; }
