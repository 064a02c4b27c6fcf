#!/bin/bash
# Stand-in for the launcher of NVIDIA's MaxText recipe, release 25.01: the same variables, defaults and folders.
#SBATCH --job-name=maxtext_llama2
#SBATCH --dependency=singleton
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=1:00:00
set -eu -o pipefail

export GSW_VERSION=25.01
export FRAMEWORK=maxtext
export MODEL=llama2
export MODEL_SIZE=70b
export FW_VERSION=2024.12.09

export IMAGE=${RUN_CONF_IMAGE:-$STAGE_PATH/nvidia+jax+maxtext-${FW_VERSION}.sqsh}
export SLURM_NTASKS_PER_NODE=${RUN_CONF_GPU_PER_NODE:-8}
export DTYPE=${DTYPE:-fp8}
export DTYPE=${DTYPE,,}
export JOB_TOTAL_GPUS=${SBATCH_GPUS:-$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE))}

export RESULT_DIR=$STAGE_PATH/results/$GSW_VERSION/$DTYPE/$MODEL_SIZE/$JOB_TOTAL_GPUS
stem=$RESULT_DIR/log-${FRAMEWORK}_${MODEL}_${MODEL_SIZE}_${JOB_TOTAL_GPUS}
mkdir -p "$RESULT_DIR"
export SRUN_OUTPUT=${SRUN_OUTPUT-${stem}_%j.out}
export SRUN_ERROR=${SRUN_ERROR-${stem}_%j.err}

# Upstream mounts the stage's cfg as /cfg.
srun --container-image "$IMAGE" --container-mounts "$RESULT_DIR,$STAGE_PATH/cfg:/cfg" --container-writable --no-container-mount-home \
    bash -c "source $STAGE_PATH/cfg/configure.sh && run_profiling && generate_pbtxt && run_performance"
