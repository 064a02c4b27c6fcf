#!/bin/bash
# Stand-in for the launcher of NVIDIA's Nemotron4 recipe, release 24.11: the same variables, defaults and folders.
#SBATCH --job-name=nemotron
#SBATCH --dependency=singleton
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=1:00:00
set -eu -o pipefail

export FRAMEWORK=nemo
export MODEL=nemotron4
export MODEL_SIZE=${MODEL_SIZE:-15b}
export GSW_VERSION=24.11
export FW_VERSION=24.09

export IMAGE=$STAGE_PATH/nvidia+nemo+${FW_VERSION}.sqsh
export DTYPE=${DTYPE:-fp8}
export DTYPE=${DTYPE,,}
FP8_ENABLED=false
[[ $DTYPE != fp8 ]] || FP8_ENABLED=true
export FP8_ENABLED

# With SLURM_GPUS_PER_NODE=null, as the README has it, the arithmetic ends the script.
export SLURM_NTASKS_PER_NODE=${SLURM_GPUS_PER_NODE:-8}
export JOB_TOTAL_GPUS=${SBATCH_GPUS:-$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE))}

export RESULT_DIR=$STAGE_PATH/results/$GSW_VERSION/$DTYPE/$MODEL_SIZE/$JOB_TOTAL_GPUS
stem=$RESULT_DIR/log-${FRAMEWORK}_${MODEL}_${MODEL_SIZE}_${JOB_TOTAL_GPUS}
mkdir -p "$RESULT_DIR" "$STAGE_PATH/index_mapping"
export SRUN_OUTPUT=${SRUN_OUTPUT-${stem}_%j.out}
export SRUN_ERROR=${SRUN_ERROR-${stem}_%j.err}

source ./configure.sh

srun --container-image "$IMAGE" --container-mounts "$RESULT_DIR,$STAGE_PATH/index_mapping,$STAGE_PATH/cfg:/cfg" \
    --container-writable --no-container-mount-home bash -c "$COMMAND_LINE"
