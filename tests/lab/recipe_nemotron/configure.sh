# Stand-in for the settings of the Nemotron4 recipe, which launch.sh sources from the folder it was submitted in.
export MAX_STEPS=${RUN_CONF_MAX_STEPS:-50}
if [[ $MODEL_SIZE == 15b ]]; then
    TP=4 PP=1 VP=null MBS=4 GBS=$((JOB_TOTAL_GPUS * 4))
else
    TP=8 PP=8 VP=12 MBS=1 GBS=$((SLURM_JOB_NUM_NODES * 2))
fi
# srun passes on 1024 bytes at a time: of this line, which each task echoes, in pieces.
OVERRIDES="model.overlap_p2p_comm=True model.batch_p2p_comm=False model.global_batch_size=$GBS trainer.num_nodes=$SLURM_JOB_NUM_NODES trainer.max_steps=$MAX_STEPS \
    model.tensor_model_parallel_size=$TP model.pipeline_model_parallel_size=$PP \
    model.virtual_pipeline_model_parallel_size=$VP model.micro_batch_size=$MBS model.fp8=${FP8_ENABLED^} \
    trainer.val_check_interval=$MAX_STEPS trainer.limit_val_batches=1 run.results_dir=$RESULT_DIR \
    model.data.index_mapping_dir=$STAGE_PATH/index_mapping model.tokenizer.model=/cfg/nemotron_2_256k.model \
    model.ub_tp_comm_overlap=True model.sequence_parallel=True model.mcore_gpt=True model.transformer_engine=True model.fp8_hybrid=True \
    model.nsys_profile.enabled=${ENABLE_PROFILE:-false}"
INFO="GSW: MODEL=$MODEL FRAMEWORK=$FRAMEWORK MODEL_SIZE=$MODEL_SIZE JOB_NUM_NODES=$SLURM_JOB_NUM_NODES \
GPUS_PER_NODE=$SLURM_NTASKS_PER_NODE DTYPE=$DTYPE SYNTHETIC_DATA=True GSW_VERSION=$GSW_VERSION FW_VERSION=$FW_VERSION \
IMAGE=\'$IMAGE\' JOB_ID=$SLURM_JOB_ID JOB_MODE=training BASE_CONFIG=\'$OVERRIDES\'"
export COMMAND_LINE="echo $INFO; test -s $STAGE_PATH/cfg/${MODEL}-${MODEL_SIZE}-synth.yaml; \
    bash $IMAGE $OVERRIDES"
