export COLUMNS=4096 TERM=dumb
exec {pacemark_out}>&1 >&2
module load slurm
exec >&$pacemark_out {pacemark_out}>&-
IFS=$' \t\n'
set +eu +o pipefail; unset SLURM_TIME_FORMAT SLURM_BITSTR_LEN SLURM_TOPO_LEN SLURM_RESTART_COUNT "${!SQUEUE_@}" "${!SCANCEL_@}" "${!SINFO_@}" "${!SACCT_@}" "${!SCONTROL_@}" "${!SBATCH_@}" "${!SRUN_@}" || exit
# llama3/70b-fp8-512gpus on site big-one: 64 nodes
set -eu
cd /lustre/nemo/llama3.1
. /lustre/nemo/venv/bin/activate
unset FORCE_COLOR LOAD_CHECKPOINT_PATH OPTIMIZATION_NAME OPTIMIZATION_CODE RUN_CONF_IMAGE
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT
export DTYPE=fp8
export MODEL_SIZE=70b
export JOB_TOTAL_GPUS=512
export GPUS_PER_NODE=8
export MAX_STEPS=50
export STAGE_PATH=/lustre/nemo
export SBATCH_ACCOUNT=research
export SBATCH_PARTITION=gpu
export TIME_LIMIT=00:30:00
export SBATCH_TIMELIMIT=00:30:00
export NEMORUN_HOME=/lustre/nemo
export NEMO_HOME=/lustre/nemo
export HF_HOME=/lustre/nemo
export DISABLE_PERFRUN=false
export ENABLE_PROFILE=false
export ENABLE_NCCLTRACE=false
export ENABLE_CHECKPOINT=false
export SBATCH_JOB_NAME=pacemark-20250411-120000-ab12.llama3-70b-fp8-512gpus
export SBATCH_GRES=gpu:8
export NCCL_IB_HCA==mlx5_0,mlx5_1
export WHO='it'"'"'s me'
export PACEMARK_SECRET_HF_TOKEN=<not shown>
export HF_TOKEN='${PACEMARK_SECRET_HF_TOKEN}'
timeout --kill-after=20 600 ./launch.sh </dev/null
