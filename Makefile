# Two commands matter: `make demo` shows it, `make test` proves it.
# Both build .venv themselves; the stamps keep a second run from installing again.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test browser check format bench soak clients docs picture release clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than 3.11 or missing; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: $(PYTHON) cannot create virtual environments; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "creating $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)

# A failed install leaves no stamp, so the next run starts again where this one stopped.
$(VENV)/node.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing skulk-toolkit[node] into $(VENV) (once)" >&2
	@$(PIP) --editable '.[node]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing skulk-toolkit[node,dev] into $(VENV) (once)" >&2
	@$(PIP) --editable '.[node,dev]'
	@touch $@ $(VENV)/node.stamp

# Clients that do not fit beside our own packages, and one for Node: 1 minute, 400 MB.
$(VENV)/clients.stamp: tests/clients/others/requirements.txt tests/clients/others/package.json | $(VENV)/bin/python
	@echo "installing litellm, langchain-openai and openai for Node into $(VENV)/clients (once)" >&2
	@$(BIN)/python -m venv $(VENV)/clients
	@$(VENV)/clients/bin/python -m pip install --quiet --disable-pip-version-check \
	  --requirement tests/clients/others/requirements.txt
	@cp tests/clients/others/package.json $(VENV)/clients/
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/clients; \
	  else echo "npm is not installed: the checks of the Node client will be skipped" >&2; fi
	@touch $@

clients: $(VENV)/dev.stamp $(VENV)/clients.stamp ## every client of docs/clients.md against a real daemon, not part of CI
	$(BIN)/python -m pytest tests/clients

demo: $(VENV)/node.stamp ## two real daemons share a real model; look at them with skulkctl
	@$(BIN)/python scripts/demo.py

# Tests of real daemons wait about half of their time: four workers keep two cores busy.
test: check browser ## everything that CI proves
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# The tests of the web page need a real browser. CI gets Debian's; elsewhere they say what is missing.
browser:
	@command -v chromium chromium-browser >/dev/null || test "$(CI)" != true || \
	  test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	  { echo "installing chromium (once)" >&2; apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null; } || \
	  echo "warning: chromium could not be installed; tests that need it are skipped" >&2

check: $(VENV)/dev.stamp ## format, lint, types, room rules, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/gen_docs.py --check

format: $(VENV)/dev.stamp ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev.stamp ## measure the figures of docs/performance.md
	$(BIN)/python -m bench

# About two hours. SKULK_SOAK_SECONDS (chaos, 600), SKULK_BUSY_SECONDS and SKULK_DIFFERENTIAL_SECONDS
# change that, SKULK_SOAK_SEED repeats a run.
soak: $(VENV)/dev.stamp ## long runs with kills, freezes and cuts, not part of CI
	$(BIN)/python -m pytest -m slow --log-cli-level=INFO

docs: $(VENV)/dev.stamp ## write man pages, completions and the command reference anew
	$(BIN)/python scripts/gen_docs.py

picture: $(VENV)/node.stamp ## take the pictures of the README and docs from real daemons
	$(BIN)/python scripts/picture.py

release: $(VENV)/bin/python ## build wheel and sdist, try both in clean environments, write checksums
	@$(BIN)/python scripts/release.py

clean: ## remove .venv and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
