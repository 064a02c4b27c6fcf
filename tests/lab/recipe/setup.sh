#!/bin/bash
# Stand-in for the recipe's set-up, run once by `sbatch -N 1 ./setup.sh` with a virtual environment active.
#SBATCH --time=1:00:00
set -eu -o pipefail

export FW_VERSION=25.02.01

# Upstream installs into whatever Python it finds; a test must not write into the system's.
: "${VIRTUAL_ENV:?activate the virtual environment first}"

packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# 1. The trainer's source tree: cloned, checked out, patched and installed where it is not there.
target=$PWD/NeMo/scripts/performance
if [ ! -d NeMo ]; then
    mkdir -p NeMo/.git "$target/llm" "$packages/nemo_toolkit-2.3.0.dist-info"
    echo d2b21556f2455b52ad7217f334bb66eaa13c0f83 > NeMo/.git/HEAD
    echo 'parser.add_argument("-cpin", "--cpu_pinning")' > "$target/argument_parser.py"
    printf 'Name: nemo_toolkit\nVersion: 2.3.0\n' > "$packages/nemo_toolkit-2.3.0.dist-info/METADATA"
fi
cp "$PWD"/*.py "$PWD"/*.json "$target/llm/"

# 2. The Python package that submits.
mkdir -p "$packages/nemo_run"
echo '__version__ = "0+standin"' > "$packages/nemo_run/__init__.py"

# 3. The container image.
srun bash -c "cp container ${STAGE_PATH}/nvidia+nemo+${FW_VERSION}.sqsh"
