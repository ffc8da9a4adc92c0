# `make` alone lists what there is to make. Needs git, make and one of python3.11 to python3.14 with its venv module.
#
# Everything is installed into .venv: pinned and hashed requirements, wheels only, then the project itself. The stamps
# are copies of the files that were installed from, so what is current goes by content and not by a file's age.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format types unit crash courses bench bench-gate coverage lock catalogue clean \
	venv run-env dev-env run-requirements dev-requirements project

BIN := .venv/bin
STAMPS := .venv/stamps
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PIP_INSTALL := $(PIP) install --require-hashes --no-deps --only-binary :all:
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

help:
	@echo 'make TARGET [ARGS="for pytest or the demo"] [PYTHON=/path/to/python]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: run-env  ## see agents wait, be killed and go on: both stories, or what ARGS says
	@$(BIN)/hibernaut demo $(ARGS)
ifndef ARGS
	@echo
	@$(BIN)/hibernaut demo tree
endif

test: lint types  ## check everything that must hold before a change goes in
	$(BIN)/pytest -n 3 --dist worksteal -m 'not long' $(ARGS)

lint: dev-env  ## check style, format and which floor imports which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

format: dev-env  ## repair what can be repaired of style and format
	$(BIN)/ruff check --quiet --fix --exit-zero
	$(BIN)/ruff format

types: dev-env  ## check the types
	$(BIN)/mypy

unit: dev-env  ## run only the quick tests
	$(BIN)/pytest -m 'not long' --ignore=tests/crash --ignore=tests/e2e --ignore=tests/store_conformance $(ARGS)

crash: dev-env  ## kill a run at every operation it makes, and see that it recovers (long)
	$(BIN)/pytest tests/crash -n auto -m long --timeout=3600 $(ARGS)

courses: dev-env  ## let threads live through anything, with models of every provider in turn, or while programs ask (long)
	$(BIN)/pytest tests/models/test_courses.py tests/test_asks_at_random.py -n auto -m long --timeout=3600 $(ARGS)

bench: run-env  ## run every program benchmarks/bench_*.py
	@for program in benchmarks/bench_*.py; do echo "$$program"; $(BIN)/python "$$program" || exit 1; done

bench-gate: run-env  ## check that the runtime is no slower beside plain Python than was recorded
	$(BIN)/python benchmarks/gate.py $(ARGS)

coverage: dev-env  ## run the tests and list the lines and branches that none of them reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m 'not long' $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lock: dev-env  ## pin the newest requirements that are at least a week old
	$(UV_COMPILE) pyproject.toml requirements/run.in --extra server --output-file requirements/run.txt
	$(UV_COMPILE) pyproject.toml requirements/dev.in --extra server --extra aws --extra fast --extra google --extra otel --extra plot --output-file requirements/dev.txt

catalogue:  ## write anew what is known of models, from the prices that the newest genai-prices has
	python3 -m venv --clear .venv/prices
	.venv/prices/bin/pip --quiet --disable-pip-version-check install genai-prices
	.venv/prices/bin/python scripts/make_catalogue.py

clean:  ## remove .venv and everything else that can be made again
	rm -rf .venv build dist htmlcov .coverage .coverage.* \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

run-env: venv run-requirements project
dev-env: venv dev-requirements project

# Made anew when it was made by another Python than the PYTHON that is asked for, was moved (its scripts hold its
# path) or was left half made.
venv:
	@if [ -x $(BIN)/pip ] && grep -qsF ' $(CURDIR)/.venv' .venv/pyvenv.cfg && $(BIN)/python -c '' 2>/dev/null && \
		{ [ -z '$(PYTHON)' ] || [ "$$($(BIN)/python -VV)" = "$$('$(PYTHON)' -VV 2>&1)" ]; }; then exit 0; fi; \
	candidates='$(or $(PYTHON),python3.11 python3.12 python3.13 python3.14)'; bare=; \
	for python in $$candidates; do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
			echo "Making .venv with $$("$$python" -V)"; \
			exec "$$python" -m venv --clear '$(CURDIR)/.venv'; \
		fi; \
		bare=$${bare:-$$python}; \
	done; \
	if [ -n "$$bare" ]; then \
		echo "error: $$bare has no venv module (on Debian: apt install $${bare##*/}-venv)" >&2; \
	else \
		echo "error: found no Python 3.11 or newer (tried $$candidates); name one: make PYTHON=/path/to/python" >&2; \
	fi; \
	exit 1

run-requirements:
	@cmp -s requirements/run.txt $(STAMPS)/run.txt || { \
		echo 'Installing what Hibernaut needs to run'; \
		$(PIP_INSTALL) -r requirements/run.txt && mkdir -p $(STAMPS) && cp requirements/run.txt $(STAMPS); }

# dev.txt holds everything that run.txt holds, in the same versions.
dev-requirements:
	@cmp -s requirements/dev.txt $(STAMPS)/dev.txt || { \
		echo 'Installing what Hibernaut needs to run and to be checked (about a minute)'; \
		$(PIP_INSTALL) -r requirements/dev.txt && mkdir -p $(STAMPS) && cp requirements/dev.txt requirements/run.txt $(STAMPS); }

project:
	@cmp -s pyproject.toml $(STAMPS)/pyproject.toml || { \
		echo 'Installing Hibernaut itself'; \
		$(PIP) install --no-build-isolation --no-deps --editable . && cp pyproject.toml $(STAMPS); }
