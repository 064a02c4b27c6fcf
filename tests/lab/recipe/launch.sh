#!/bin/bash
# Stand-in for the launcher of NVIDIA's Llama 3.1 recipe, release 25.04: the same variables, defaults and flags.
set -eu -o pipefail

export FW_VERSION=25.02.01
export GSW_VERSION=25.04.01
export LLMB_PATH=$PWD

export IMAGE=${RUN_CONF_IMAGE:-$STAGE_PATH/nvidia+nemo+$FW_VERSION.sqsh}
export HF_TOKEN=${HF_TOKEN?"HF_TOKEN must be set"}
for home in NEMO_HOME NEMORUN_HOME HF_HOME; do
    export "$home=${!home:-$STAGE_PATH}"
done

export MAX_STEPS=${MAX_STEPS:-50}
export DTYPE=${DTYPE:-bf16}
export MODEL_SIZE=${MODEL_SIZE:-8b}
export JOB_TOTAL_GPUS=${JOB_TOTAL_GPUS:-8}
export GPUS_PER_NODE=${GPUS_PER_NODE:-8}
export TIME_LIMIT=${TIME_LIMIT:-00:30:00}
export DISABLE_PERFRUN=${DISABLE_PERFRUN:-false}
export ENABLE_PROFILE=${ENABLE_PROFILE:-false}
export ENABLE_NCCLTRACE=${ENABLE_NCCLTRACE:-false}
export ENABLE_CHECKPOINT=${ENABLE_CHECKPOINT:-false}
export ENABLE_CHECKPOINT=${ENABLE_CHECKPOINT,,}
export PROFILE_START_STEP=${PROFILE_START_STEP:-20}
export PROFILE_STOP_STEP=${PROFILE_STOP_STEP:-25}

# A run from a checkpoint takes one step only.
[[ -z ${LOAD_CHECKPOINT_PATH:-} ]] || MAX_STEPS=1

more=""
[[ $DISABLE_PERFRUN != true ]] || more+=" -dp"
if [[ $ENABLE_PROFILE == true ]]; then
    more+=" -ns --profiling_start_step=$PROFILE_START_STEP --profiling_stop_step=$PROFILE_STOP_STEP"
    # As upstream does: this shortens the timed run as well.
    MAX_STEPS=$PROFILE_STOP_STEP
fi
[[ $ENABLE_NCCLTRACE != true ]] || more+=" -nt"

cd "$LLMB_PATH/NeMo"
# Unquoted, as upstream has it: a value with a blank in it breaks here and not later.
python3 -m scripts.performance.llm.pretrain_llama31 -a $SBATCH_ACCOUNT -p $SBATCH_PARTITION -t $TIME_LIMIT \
    -l $NEMORUN_HOME -i $IMAGE -m $MODEL_SIZE -c $DTYPE -ms $MAX_STEPS -ng $JOB_TOTAL_GPUS -gn $GPUS_PER_NODE \
    -hf $HF_TOKEN -fw $FW_VERSION -gsw $GSW_VERSION $more
