# Each target works as the only command on a fresh clone: it makes .venv and installs what it needs
# (but for `gpu`, which installs nothing, and `proofs`, which does not install Coq).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some machines set it: every process of the tests would then compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL: # the targets share one environment

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

.PHONY: figures
figures: $(VENV)/.installed-figures ## draw the figures into build/ and compare them (some: ONLY="name ...")
	$(BIN)/python -m figures $(if $(FULL),--full) $(if $(UPDATE),--update) $(ONLY)

.PHONY: test
test: $(VENV)/.installed-test ## run the tests (options for pytest: ARGS="-k k_seq")
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# What a change most often breaks: names, layers, messages, and one exact distribution of each part.
QUICK = tests/repo/test_import.py tests/repo/test_public_api.py tests/repo/test_docstrings.py \
	tests/test_errors.py tests/test_rules.py tests/test_problem.py tests/test_bad_input.py \
	tests/core/probs/test_sampling.py tests/core/test_sums.py tests/core/test_numbers.py \
	tests/optimum/test_cut.py tests/coupling/optimal/test_plan.py \
	tests/coupling/test_plan_protocol.py::test_the_code_that_decides_is_lossless \
	tests/decoding/test_lossless.py tests/kernels/chain/test_numpy.py \
	tests/kernels/multi_draft/test_torch.py tests/audit/adapters/test_adapters.py

.PHONY: quick
quick: $(VENV)/.installed-test ## run the tests that a change most often breaks, in a minute
	$(BIN)/python -m pytest -n auto --dist worksteal $(QUICK) $(ARGS)

.PHONY: oldest
oldest: ## run the tests with the oldest versions that pyproject.toml allows
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install -c constraints-oldest.txt pytest pytest-xdist dask distributed \
		-e ".[figures,report,cvxpy,huggingface,flow,sinkhorn,testing,cli,server]"
	$(VENV)-oldest/bin/python -m pytest -n auto --dist worksteal -W ignore::DeprecationWarning \
		-W "ignore:It looks like" $(ARGS)

.PHONY: coverage
coverage: $(VENV)/.installed-test ## run the tests and list the lines that no test runs
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist worksteal $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

.PHONY: check
check: $(VENV)/.installed-check ## check style, types, phrases and the files for code hosts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python docs/snippets.py
	$(BIN)/python -m pytest -q tests/repo/test_snippets.py
	$(BIN)/python docs/phrases.py
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

.PHONY: format
format: $(VENV)/.installed-check ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The guard has a target of its own, soak takes half an hour, and tables and pictures measure nothing.
BENCHMARKS = $(filter-out guard soak tables pictures,$(basename $(notdir \
	$(shell grep -l '"__main__"' benchmarks/*.py))))

.PHONY: bench
bench: $(VENV)/.installed-benchmarks ## run all benchmarks
	@set -e; for name in $(BENCHMARKS); do echo "== benchmarks.$$name"; $(BIN)/python -m "benchmarks.$$name"; done

.PHONY: guard
guard: $(VENV)/.installed-benchmarks ## check that nothing is slower than at another revision (ARGS="--against REVISION")
	$(BIN)/python -m benchmarks.guard $(ARGS)

# Nothing is installed: it uses the torch of $(PYTHON), on a machine that may have no network.
.PHONY: gpu
gpu: ## try, measure and tune the kernels on a GPU, with the NumPy, torch and Triton of PYTHON (ARGS="--rehearse")
	$(PYTHON) -m benchmarks.gpu $(ARGS)

# vLLM's build for CPUs pins other versions than ours, so it has an environment of its own (4 GB).
.PHONY: vllm
vllm: $(VENV)-vllm/.installed ## serve models by vLLM, with and without our verifiers, and audit what they send
	$(VENV)-vllm/bin/python -m benchmarks.engines $(ARGS)

.PHONY: llama
llama: $(VENV)-llama/.installed $(VENV)/.installed-server ## serve a model by llama-cpp-python, and audit what it sends
	$(BIN)/python -m benchmarks.engines.llama $(VENV)-llama/bin/python $(ARGS)

.PHONY: coq-is-there
coq-is-there:
	@command -v coqc > /dev/null || { \
		echo "coqc is missing: install Coq 8.16 with Mathematical Components 1.15. On Debian 12:"; \
		echo "apt-get install coq libcoq-mathcomp-algebra libcoq-mathcomp-algebra-tactics"; exit 1; } >&2

# Coq is not installed; the .venv is, for what Coq computes is compared with OTM.
.PHONY: proofs
proofs: coq-is-there $(VENV)/.installed-testing ## check the theory by Coq, and what it computes against OTM
	$(BIN)/python docs/theory/proofs/check.py

.PHONY: dist
dist: | $(VENV)/.created ## build the wheel and the sdist into dist/, and try both
	rm -rf dist
	$(BIN)/python -m pip install -q -c constraints.txt hatchling
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python tests/installed/try_out.py dist/*.whl dist/*.tar.gz

.PHONY: docs
docs: $(VENV)/.installed-docs ## build the documentation into docs/_build/html
	$(BIN)/python -m sphinx -q -W --keep-going -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Without windows, which would wait to be closed.
.PHONY: examples
examples: $(VENV)/.installed-figures ## run the examples
	@set -e; for script in examples/[!_]*.py; do echo "== $$script"; \
		MPLBACKEND=agg $(BIN)/python -W "ignore:FigureCanvasAgg is non-interactive" "$$script"; done

.PHONY: demo
demo: $(VENV)/.installed-torch,cli ## decode a prompt by every method (options: ARGS="--prompt ...")
	$(BIN)/otm decode $(ARGS)

.PHONY: models
models: $(VENV)/.installed-real,cli ## download two real language models, check and convert them (ARGS=SmolLM2-135M)
	$(BIN)/otm models $(or $(ARGS),SmolLM2-135M gemma-3-270m)

.PHONY: real
real: $(VENV)/.installed-real,figures ## measure real models in half an hour (some stages: ARGS="--only ...")
	$(BIN)/python -m benchmarks.real $(ARGS)

.PHONY: clean
clean: ## remove environments, caches and builds; the committed figures stay
	rm -rf $(VENV) $(VENV)-* build dist docs/_build docs/auto_examples .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	cd docs/theory/proofs && rm -f *.vo *.vok *.vos *.glob .*.aux Checked.v Instances.v
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of pyproject.toml. The variables hold the build of the package to the
# constraints too, under their old name (pip before 25.3) and their new one.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/.created
	@echo "Installing otm[$*] into $(VENV): a minute or two the first time"
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
		$(BIN)/python -m pip install -c constraints.txt -e ".[$*]"
	@touch $@

$(VENV)-vllm/.installed: benchmarks/engines/install.py pyproject.toml
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python benchmarks/engines/install.py
	@touch $@

# The server's compiler takes minutes; without LLAVA_BUILD it leaves out the part for images.
$(VENV)-llama/.installed:
	$(PYTHON) -m venv $(VENV)-llama
	CMAKE_ARGS="-DLLAVA_BUILD=OFF" $(VENV)-llama/bin/python -m pip install "llama-cpp-python[server]==0.3.36"
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "OTM needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
		echo "Name another one: make PYTHON=python3.12 ..."; exit 1; } >&2
	@$(PYTHON) -m venv $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu the package python3-venv has it;"; \
		echo "or name another Python: make PYTHON=python3.12 ..."; exit 1; } >&2
	@touch $@
