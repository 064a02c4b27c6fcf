#!/bin/bash
# Stand-in for the recipe's set-up, run once by `sbatch -N 1 ./setup.sh` with a virtual environment active.
#SBATCH --time=1:00:00
set -eu -o pipefail

export FW_VERSION=25.02.01

# Upstream installs into whatever Python it finds; a test must not write into the system's.
: "${VIRTUAL_ENV:?activate the virtual environment first}"

# 1. The trainer's source tree, kept if it is there.
target=$PWD/NeMo/scripts/performance/llm
mkdir -p "$target"
cp "$PWD"/*.py "$PWD"/*.json "$target/"

# 2. The Python package that submits.
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$packages/nemo_run"
echo '__version__ = "0+standin"' > "$packages/nemo_run/__init__.py"

# 3. The container image.
srun bash -c "echo 'stand-in for the container image' > ${STAGE_PATH}/nvidia+nemo+${FW_VERSION}.sqsh"
