# Stand-in for the settings of the MaxText recipe, which every task sources inside the container.
set -eu -o pipefail

MAX_STEPS=${RUN_CONF_MAX_STEPS:-50}
ici_FSDP=$SLURM_NTASKS_PER_NODE
dcn_FSDP=$SLURM_JOB_NUM_NODES
dcn_DP=1
if [[ $SLURM_JOB_NUM_NODES -ge 64 ]]; then
    dcn_FSDP=16
    dcn_DP=$((SLURM_JOB_NUM_NODES / dcn_FSDP))
fi
case $DTYPE in
    fp8) QUANTIZATION=fp8 ;;
    bf16) QUANTIZATION="" ;;
    *) echo "Unsupported precision ($DTYPE) selected"; exit 1 ;;
esac
RUN_NAME=${FRAMEWORK}_${MODEL}_${MODEL_SIZE}_${SLURM_JOB_NUM_NODES}n_$DTYPE
CONFIG="use_iota_embed=true scan_layers=true per_device_batch_size=2 model_name=$MODEL-$MODEL_SIZE enable_checkpointing=false \
    logits_dot_in_fp32=false base_output_directory=local_train dataset_path=local dataset_type=synthetic attention=cudnn_flash_te \
    tokenizer_path=/opt/maxtext/assets/tokenizer.llama2 hardware=gpu_multiprocess monitor_goodput=False \
    enable_goodput_recording=False profiler=nsys skip_first_n_steps_for_profiler=9 profiler_steps=3 max_target_length=4096 quantization=$QUANTIZATION \
    dcn_fsdp_parallelism=$dcn_FSDP ici_fsdp_parallelism=$ici_FSDP dcn_data_parallelism=$dcn_DP"

echo "GSW: MODEL=$MODEL FRAMEWORK=$FRAMEWORK MODEL_SIZE=$MODEL_SIZE JOB_NUM_NODES=$SLURM_JOB_NUM_NODES" \
    "GPUS_PER_NODE=$SLURM_NTASKS_PER_NODE DTYPE=$DTYPE JOB_ID=$SLURM_JOB_ID BASE_CONFIG='$(echo $CONFIG)' dcn_FSDP=$dcn_FSDP dcn_DP=$dcn_DP"

run_profiling() {
    mkdir -p "$RESULT_DIR/nsys"
    bash "$IMAGE" run_name="$RUN_NAME-prof" steps=15 $CONFIG
}

generate_pbtxt() {
    mkdir -p "$RESULT_DIR/lhs_pbtxt"
    [[ $SLURM_PROCID == 0 ]] || echo "First jax process will generate the pbtxt"
}

run_performance() {
    bash "$IMAGE" run_name="$RUN_NAME-perf" steps="$MAX_STEPS" $CONFIG
}
