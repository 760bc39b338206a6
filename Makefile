# `make demo` and `make test` do all the set-up themselves. PYTHON picks the interpreter (3.11+).
PYTHON ?= python3
VENV   ?= .venv
COMPAT ?= .venv-compat
OUT    ?= results/set-complement
# Processes that share the tests, with one thread each.
JOBS   ?= 2

BIN     := $(VENV)/bin
# The strict editable install links each file, so it is made anew when a file comes or goes.
SOURCES := $(sort $(shell find package models interp analyses -type f -not -name '*.pyc'))
KEY     := $(shell (cat pyproject.toml constraints.txt; echo $(SOURCES)) | cksum | cut -d' ' -f1)
READY   := $(VENV)/.ready-$(KEY)

.PHONY: demo test test-fast check compat format docs docs-figures figure notebooks remedy-map clean

demo: $(READY)
	$(BIN)/resharpen study set-complement --preset quick --out $(OUT)

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-fast: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow"

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/test_layout.py -m "not slow"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Models of TransformerLens 3.9 and 2.18, each in an environment of its own: the same logits as ours,
# and the same numbers through our adapters. pyarrow is held back since 2.18 does not import with a
# newer one.
compat: $(COMPAT)-3.9/.ready $(COMPAT)-2.18/.ready
	$(COMPAT)-3.9/bin/pip install --quiet --no-deps --force-reinstall .
	$(COMPAT)-3.9/bin/python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir tests/compat \
	  --noconftest -W error tests/compat/check_hooked_transformer.py tests/compat/check_adapters.py
	$(COMPAT)-2.18/bin/pip install --quiet --no-deps --force-reinstall .
	$(COMPAT)-2.18/bin/python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir tests/compat \
	  --noconftest tests/compat/check_adapters.py

# The documentation as a site, build/docs/index.html; every warning is an error.
docs: $(READY)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -d build/doctrees \
	  docs build/docs

# The figures of the theory pages and of the tutorial.
docs-figures: $(READY)
	$(BIN)/python examples/theory_figures.py
	$(BIN)/python examples/tutorial_figures.py

# The examples, run and kept with their figures as images.
notebooks: $(READY)
	$(BIN)/python examples/notebook_images.py examples/*.ipynb

# The figure of the README, from the last demo's result.
figure: $(READY)
	$(BIN)/python examples/readme_figure.py $(OUT) docs/set-complement.png

# The tables and the figure of docs/remedies, from the committed map.
remedy-map: $(READY)
	$(BIN)/python examples/remedy_tables.py
	$(BIN)/python examples/remedy_map_figure.py

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "resharpen needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first and alone: asked for by another package, it may come as a build of several GB.
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" \
	  --config-settings editable_mode=strict
	@rm -f $(VENV)/.ready-*
	@touch $@

$(COMPAT)-3.9/.ready $(COMPAT)-2.18/.ready: $(COMPAT)-%/.ready: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@# The version under test is the one thing that the constraints do not decide here.
	grep '^torch' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/pip install --quiet --disable-pip-version-check -c $(@D)/constraints.txt torch
	$(@D)/bin/pip install --quiet --disable-pip-version-check -c $(@D)/constraints.txt \
	  "transformer-lens==$*.0" "pyarrow<21" einops entmax jaxtyping lazy-loader numpy pytest safetensors \
	  setuptools tqdm
	@touch $@

clean:
	rm -rf $(VENV) $(COMPAT)-* build dist *.egg-info results
