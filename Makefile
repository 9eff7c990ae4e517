# Every target makes .venv and installs into it what it needs, once: again only after pyproject.toml has changed.
# What can be set on the command line: `make test WORKERS=8 ARGS="-k layout"`.

PYTHON ?= python3
# The tests wait for processes and files more than they compute, so more workers than cores pay.
WORKERS ?= 4
# Handed to the program that the target runs.
ARGS ?=
# Of all scenarios together, and once more of all file systems: an hour in all.
STRESS_SECONDS ?= 1500
# On each of three servers.
CHECKED_SECONDS ?= 200

# Bytecode is kept, whatever the environment says: tests start many processes, and each worker of pytest would rewrite
# the asserts of all tests again, which takes ten seconds of a core.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/stamp
DOCS_STAMP := $(VENV)/stamp-docs
DIST_STAMP := $(VENV)/stamp-dist
PACKAGES := lockcache daemon/lockcache_start daemon/lockcache_daemon stress/lockcache_stress

.DEFAULT_GOAL := help
.PHONY: help venv demo shape quick test test-rest test-all frameworks frameworks-figures properties coverage mutants check docs format format-check lint words types layers deps dist sbom stress bench figures fleet eviction man pictures clean distclean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## the same work without a cache and with it, in a minute and twenty lines (ARGS=--verbose: tables)
	@$(PYTHON) stress/demo/demo.py $(ARGS)

# Workers that have nothing left take tests from others, of whom some last a minute.
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist worksteal

quick: $(STAMP) ## what one runs after each edit, under a minute: unit, contract and property tests
	$(PY) -m pytest -n 2 --dist worksteal -q --hypothesis-profile=quick -m "not slow and not long and not exhaustive" \
	    tests/unit tests/contract tests/properties $(ARGS)

# The sentence stands in front of the installation, if there is one, and of the tests.
.PHONY: say-test say-test-rest
say-test:
	@echo "make test: every kind of proof at least once, with real processes and compilers; no GPU is needed."
	@echo "About five minutes on two quiet cores, with $(WORKERS) workers. Failures are shown in full at the end."

say-test-rest:
	@echo "make test-rest: the tests that take long, and the rest of large matrices. About half an hour on two quiet cores."

test: say-test $(STAMP) ## the tests, every kind of proof at least once, in five minutes (WORKERS=4, ARGS="-k name")
	@$(PYTEST) --by-folder -m "not long and not exhaustive" $(ARGS)

test-rest: say-test-rest $(STAMP) ## what make test leaves out: what takes long, and the rest of large matrices
	@$(PYTEST) --by-folder -m "long or exhaustive" $(ARGS)

test-all: test test-rest ## all tests

# Each in a virtual environment of its own, which stays until `make distclean`.
LOCKCACHE_FRAMEWORKS ?= jax jax-oldest triton triton-3.3 triton-oldest cupy numba numba_mlir warp warp-oldest inductor inductor-2.13 inductor-oldest cute cutile cutile-oldest helion tilelang cpp_extension cpp_extension-2.13 flashinfer
FRAMEWORKS ?= $(LOCKCACHE_FRAMEWORKS)

frameworks: $(STAMP) $(FRAMEWORKS:%=build/frameworks/%/stamp) ## real frameworks on lockcache (FRAMEWORKS="triton inductor inductor-2.13 inductor-oldest", 1 GB each)
	$(PYTEST) -m "long or not long" tests/frameworks $(ARGS)

frameworks-figures: $(STAMP) $(FRAMEWORKS:%=build/frameworks/%/stamp) ## their own caches next to lockcache: the table of the guides, five minutes
	$(PY) -m tests.frameworks.measure $(FRAMEWORKS)

build/frameworks/%/stamp: tests/frameworks/programs/%.txt pyproject.toml
	$(PYTHON) -m venv build/frameworks/$*
	build/frameworks/$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -r $< .
	touch $@

properties: $(STAMP) ## the property tests, with twenty times the examples
	$(PYTEST) --hypothesis-profile=nightly --timeout 3600 tests/properties $(ARGS)

# Open to all: tests that become other users measure there too. A test that fails does not end it: measuring makes all of
# it twice as slow, and whether tests pass is for `make test` to say.
coverage: $(STAMP) ## branch coverage of lockcache and the daemon by the tests, what they start and fork included; at least 95 %
	rm -rf build/coverage && mkdir -p build/coverage && chmod 1777 build/coverage
	-COVERAGE_FILE=$(CURDIR)/build/coverage/data $(PY) -m coverage run -m pytest -n $(WORKERS) --dist worksteal -m "not unmeasured" $(ARGS)
	COVERAGE_FILE=$(CURDIR)/build/coverage/data $(PY) -m coverage combine --quiet
	COVERAGE_FILE=$(CURDIR)/build/coverage/data $(PY) -m coverage html --quiet -d build/coverage/html --fail-under=0
	COVERAGE_FILE=$(CURDIR)/build/coverage/data $(PY) -m coverage xml --quiet -o build/coverage/coverage.xml --fail-under=0
	COVERAGE_FILE=$(CURDIR)/build/coverage/data $(PY) -m coverage report
	@$(PY) -c 'import sys, xml.etree.ElementTree as tree; \
	branches = float(tree.parse("build/coverage/coverage.xml").getroot().get("branch-rate")); \
	print(f"branches alone: {branches:.1%}"); sys.exit(branches < 0.95)'

mutants: $(STAMP) ## small faults in lockcache/filestream, one at a time: how many do the tests notice? (half an hour; ARGS="entry disk/locks.py")
	$(PY) -m pip install --quiet --disable-pip-version-check --group mutants
	$(PY) -m tests.mutants.score $(ARGS)

check: format-check lint words types layers deps shape ## all that follows here and does not run code

format-check: $(STAMP) ## is everything formatted?
	$(BIN)/ruff format --check .

lint: $(STAMP) ## ruff's rules
	$(BIN)/ruff check .

words: $(STAMP) ## plain words: the mechanical rules, in code and documents
	$(PY) tests/layers/words.py

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

layers: $(STAMP) ## who may import whom
	$(BIN)/lint-imports --no-logo importlinter.toml

deps: $(STAMP) ## dependencies that are unused, missing or undeclared
	$(BIN)/deptry $(PACKAGES)

shape: $(STAMP) ## what operations pass, how long functions are, circles of imports: counts that may only fall
	$(PY) -m tests.shape $(ARGS)

format: $(STAMP) ## format, and fix what can be fixed without thought
	$(BIN)/ruff check --fix-only --quiet .
	-$(PY) tests/layers/words.py --add-licences
	$(BIN)/ruff format .

docs: $(DOCS_STAMP) ## the documents as pages, in build/docs; every warning is an error, and so is a figure of another run
	$(PY) docs/figures.py --check
	$(PY) -m sphinx -b html -E -W --keep-going -q -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

dist: $(DIST_STAMP) ## the source archive and the wheel, in build/dist, as an index would take them
	@rm -rf build/dist
	$(PY) -m build --outdir build/dist .
	$(PY) -m twine check --strict build/dist/*

sbom: dist ## what the wheel installs with the extra daemon, as CycloneDX, in build/sbom
	@rm -rf build/sbom && mkdir -p build/sbom
	$(PYTHON) -m venv build/sbom/venv
	build/sbom/venv/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo build/dist/*.whl)[daemon]"
	build/sbom/venv/bin/python -m pip uninstall --quiet --yes setuptools pip
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-file build/sbom/lockcache.cdx.json build/sbom/venv/bin/python
	@rm -rf build/sbom/venv

# Each part leaves a page and a JUnit file in build/stress, whatever the others find. What only root can do is skipped.
STRESS_PARTS := kill-table schedules crash-states model power-cut filesystems hosts remote takeover bugs all
WORDS_schedules := --seconds 300
WORDS_power-cut := --if-possible --seconds 60
WORDS_filesystems = --if-possible --seconds $(STRESS_SECONDS)
WORDS_hosts := --nfs --if-possible
WORDS_remote = --if-possible --scenarios cold,takeover,restarts,checked --checked-seconds $(CHECKED_SECONDS)
WORDS_takeover := --seconds 60
WORDS_all = --seconds $(STRESS_SECONDS) $(ARGS)
STRESS_TARGETS := $(STRESS_PARTS:%=stress-%)
.PHONY: $(STRESS_TARGETS)

stress: $(STAMP) ## death at every step, power cuts, file systems, two hosts, daemons that die, planted bugs, all scenarios (an hour)
	@rm -f $(STRESS_PARTS:%=build/stress/%.html) $(STRESS_PARTS:%=build/stress/%.xml)
	@failed=" "; \
	for part in $(STRESS_PARTS); do $(MAKE) --no-print-directory stress-$$part || failed="$$failed$$part "; done; \
	echo; \
	for part in $(STRESS_PARTS); do \
	    page=build/stress/$$part.html; \
	    verdict=$$(sed -n 's/.*<title>\([A-Za-z]*\): .*/\1/p' $$page 2>/dev/null); \
	    case "$$failed" in *" $$part "*) [ -n "$$verdict" ] || page="no report"; verdict=FAILED;; esac; \
	    printf 'stress: %-12s %-8s %s\n' "$$part" "$$verdict" "$$page"; \
	done; \
	[ "$$failed" = " " ]

# The older files first: of a part that ends without leaving any, nobody may take them for its own.
$(STRESS_TARGETS): stress-%: $(STAMP) | build/stress
	@rm -f $|/$*.html $|/$*.xml
	$(BIN)/lockcache-stress $* $(WORDS_$*) --report $|/$*.html --junit $|/$*.xml

build/stress build/bench:
	@mkdir -p $@

bench: $(STAMP) | build/bench ## this cache next to others, as ratios; ARGS=--curve for curves (minutes)
	$(BIN)/lockcache-stress bench --report $|/bench.html --json-file $|/bench.json $(ARGS)

figures: $(STAMP) ## fill the figures of all pages from the run that `make bench` left
	$(PY) docs/figures.py build/bench/bench.json

fleet: $(STAMP) ## tables and picture of the page about fleets that start, simulated (a minute)
	$(BIN)/lockcache-stress fleet --seed 1 --markdown --svg docs/_static/fleet.svg | $(PY) docs/fleet.py

man: $(STAMP) ## the manual pages, docs/man/*.1, from the programs' options
	$(PY) docs/man.py

eviction: $(STAMP) ## table and picture of the page about eviction: six orders on five traces, with real costs (two minutes)
	$(BIN)/lockcache-stress simulate --seed 1 --markdown --svg docs/_static/eviction.svg | $(PY) docs/fleet.py eviction.md simulate

pictures: $(STAMP) ## the pictures of the README, from real runs; an hour, and it needs Chromium (ARGS="--minutes 0" without)
	PATH=$(CURDIR)/$(BIN):$$PATH $(PY) docs/pictures.py $(ARGS)

venv: $(STAMP) ## only make .venv

clean: ## remove what was built and cached; .venv stays
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(PACKAGES) tests -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove .venv too
	rm -rf $(VENV)

# The stamp holds the directory that .venv was installed for. Scripts and the editable install name that directory,
# so a .venv that was copied or moved along with the checkout would test the code in the old place: begin again.
STAMPED_FOR := $(shell cat $(STAMP) 2>/dev/null)
ifneq ($(STAMPED_FOR),)
ifneq ($(STAMPED_FOR),$(CURDIR))
$(STAMP): FORCE
endif
endif

# A .venv without a stamp (made by hand, or left half done) is completed, not replaced.
$(STAMP): pyproject.toml
	@if [ -n "$(STAMPED_FOR)" ] && [ "$(STAMPED_FOR)" != "$(CURDIR)" ]; then rm -rf $(VENV); fi
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing what the tests and checks need into $(VENV) (1.1 GB; once, and after pyproject.toml has changed)"
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" # the first with --group
	$(PY) -m pip install --quiet --group dev --editable ".[all]"
	@echo "$(CURDIR)" > $@

$(DIST_STAMP): $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check --group dist
	@touch $@

# Apart from what the tests need: a generator is 15 s of installing.
$(DOCS_STAMP): $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@
