#!/bin/bash
# Stand-in for the set-up of the Nemotron4 recipe, release 24.11.
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=00:20:00
set -eu

mkdir -p "$STAGE_PATH/cfg"
cp -f nemotron4*.yaml nemotron*.model "$STAGE_PATH/cfg"
cp -f *.sh *.md "$STAGE_PATH"

# Upstream asks for a terminal here, which a batch job does not have.
srun -N 1 -t 00:20:00 --pty bash -c "cp container ${STAGE_PATH}/nvidia+nemo+24.09.sqsh"
