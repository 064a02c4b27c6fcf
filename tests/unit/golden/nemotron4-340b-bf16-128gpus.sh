export COLUMNS=4096 TERM=dumb
exec {pacemark_out}>&1 >&2
module load slurm
exec >&$pacemark_out {pacemark_out}>&-
IFS=$' \t\n'
set +eu +o pipefail; unset SLURM_TIME_FORMAT SLURM_BITSTR_LEN SLURM_TOPO_LEN SLURM_RESTART_COUNT "${!SQUEUE_@}" "${!SCANCEL_@}" "${!SINFO_@}" "${!SACCT_@}" "${!SCONTROL_@}" "${!SBATCH_@}" "${!SRUN_@}" || exit
# nemotron4/340b-bf16-128gpus on site big-one: 16 nodes
set -eu
cd /lustre/nemo/nemotron4
unset FORCE_COLOR SLURM_GPUS_PER_NODE SBATCH_GPUS_PER_NODE SBATCH_GPUS OPTIMIZATION_NAME OPTIMIZATION_CODE
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT
export STAGE_PATH=/lustre/nemo/nemotron4
export DTYPE=bf16
export MODEL_SIZE=340b
export RUN_CONF_MAX_STEPS=50
export SBATCH_TIMELIMIT=00:30:00
export SLURM_KILL_BAD_EXIT=1
export ENABLE_PROFILE=false
export ENABLE_NCCL_TRACE=false
export SRUN_OUTPUT=/lustre/nemo/nemotron4/results/24.11/bf16/340b/128/log-pacemark-20250411-120000-ab12.nemotron4-340b-bf16-128gpus_%j.out
export SRUN_ERROR=/lustre/nemo/nemotron4/results/24.11/bf16/340b/128/log-pacemark-20250411-120000-ab12.nemotron4-340b-bf16-128gpus_%j.err
export SLURM_STDOUTMODE=/lustre/nemo/nemotron4/results/24.11/bf16/340b/128/log-pacemark-20250411-120000-ab12.nemotron4-340b-bf16-128gpus_%j.out
export SLURM_STDERRMODE=/lustre/nemo/nemotron4/results/24.11/bf16/340b/128/log-pacemark-20250411-120000-ab12.nemotron4-340b-bf16-128gpus_%j.err
export SBATCH_JOB_NAME=pacemark-20250411-120000-ab12.nemotron4-340b-bf16-128gpus
export SBATCH_GRES=gpu:8
export NCCL_IB_HCA==mlx5_0,mlx5_1
export WHO='it'"'"'s me'
timeout --kill-after=20 600 sbatch --parsable --no-requeue --output=/lustre/nemo/nemotron4/slurm-%j.out -A research -p gpu -N 16 /lustre/nemo/nemotron4/launch.sh </dev/null
