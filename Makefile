# Two commands matter: `make demo` shows it, `make test` proves it.
# Both build .venv themselves; the stamps keep a second run from installing again.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench soak docs picture clean

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

demo: $(VENV)/node.stamp ## two real daemons share a real model; look at them with skulkctl
	@$(BIN)/python scripts/demo.py

test: check ## everything that CI proves
	$(BIN)/python -m pytest -n 2 --dist loadfile

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
# change that, SKULK_SOAK_SEED repeats a run. With SKULK_SOAK_SECONDS=3600 slow leaks show.
soak: $(VENV)/dev.stamp ## long runs with kills, freezes and cuts, not part of CI
	$(BIN)/python -m pytest -m slow --log-cli-level=INFO

docs: $(VENV)/dev.stamp ## write man pages, completions and the command reference anew
	$(BIN)/python scripts/gen_docs.py

picture: $(VENV)/node.stamp ## take the README's terminal picture from a real daemon
	$(BIN)/python scripts/picture.py

clean: ## remove .venv and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
