# make demo   the whole job on this machine: 50 real training steps, a verdict, a report (no cluster needed)
# make test   all tests; as root it installs what the Slurm lab needs, otherwise it says what it leaves out
# make lint   style, types and the import rules
# make format

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAB_PACKAGES := slurm-wlm munge openssh-server
LAB_PROGRAMS := slurmctld slurmd sbatch munged ssh-keygen

.PHONY: demo test lint format lab clean

demo: $(BIN)/.demo
	$(BIN)/python -m pytest suites/proxy -p no:cacheprovider

test: $(BIN)/.test lab
	$(BIN)/python -m pytest tests

lint: $(BIN)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BIN)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Debian's packages for the Slurm lab, where root may install them; the tests themselves tell what is missing.
lab:
	@for program in $(LAB_PROGRAMS); do command -v $$program >/dev/null 2>&1 || missing=1; done; \
	test -x /usr/sbin/sshd || missing=1; \
	if [ -z "$$missing" ]; then exit 0; \
	elif [ "$$(id -u)" != 0 ]; then echo "make test: not root, so the Slurm lab's packages are not installed and its tests are skipped"; \
	elif ! command -v apt-get >/dev/null; then echo "make test: no apt-get here, so the Slurm lab's packages are not installed and its tests are skipped"; \
	else apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(LAB_PACKAGES); fi

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { echo "on Debian: apt-get install python3-venv"; exit 1; }

$(BIN)/.demo: $(BIN)/python requirements.txt suites/proxy/requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.txt -r suites/proxy/requirements.txt
	@touch $@

$(BIN)/.test: $(BIN)/python requirements.txt suites/proxy/requirements.txt tests/requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) results .benchmarks .pytest_cache .mypy_cache .ruff_cache
