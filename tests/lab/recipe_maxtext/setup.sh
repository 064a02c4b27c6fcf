#!/bin/bash
# Stand-in for the set-up of the MaxText recipe, release 25.01.
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=00:45:00
set -eu -o pipefail

mkdir -vp "$STAGE_PATH/cfg"
cp -vf launch.sh *.md "$STAGE_PATH"
cp -vf configure.sh "$STAGE_PATH/cfg"

srun bash -c "cp container ${STAGE_PATH}/nvidia+jax+maxtext-2024.12.09.sqsh"
