export COLUMNS=4096 TERM=dumb
exec {pacemark_out}>&1 >&2
module load slurm
exec >&$pacemark_out {pacemark_out}>&-
IFS=$' \t\n'
set +eu +o pipefail; unset SLURM_TIME_FORMAT SLURM_BITSTR_LEN SLURM_TOPO_LEN SLURM_RESTART_COUNT "${!SQUEUE_@}" "${!SCANCEL_@}" "${!SINFO_@}" "${!SACCT_@}" "${!SCONTROL_@}" "${!SBATCH_@}" "${!SRUN_@}" || exit
# maxtext_llama2/70b-fp8-1024gpus on site big-one: 128 nodes
set -eu
cd /lustre/nemo/maxtext_llama2
unset FORCE_COLOR SLURM_GPUS_PER_NODE SBATCH_GPUS RUN_CONF_IMAGE OPTIMIZATION_NAME OPTIMIZATION_CODE
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT
export STAGE_PATH=/lustre/nemo/maxtext_llama2
export DTYPE=fp8
export RUN_CONF_GPU_PER_NODE=8
export RUN_CONF_MAX_STEPS=50
export SBATCH_TIMELIMIT=00:30:00
export SLURM_KILL_BAD_EXIT=1
export SRUN_OUTPUT=/lustre/nemo/maxtext_llama2/results/25.01/fp8/70b/1024/log-pacemark-20250411-120000-ab12.maxtext_llama2-70b-fp8-1024gpus_%j.out
export SRUN_ERROR=/lustre/nemo/maxtext_llama2/results/25.01/fp8/70b/1024/log-pacemark-20250411-120000-ab12.maxtext_llama2-70b-fp8-1024gpus_%j.err
export SLURM_STDOUTMODE=/lustre/nemo/maxtext_llama2/results/25.01/fp8/70b/1024/log-pacemark-20250411-120000-ab12.maxtext_llama2-70b-fp8-1024gpus_%j.out
export SLURM_STDERRMODE=/lustre/nemo/maxtext_llama2/results/25.01/fp8/70b/1024/log-pacemark-20250411-120000-ab12.maxtext_llama2-70b-fp8-1024gpus_%j.err
export SBATCH_JOB_NAME=pacemark-20250411-120000-ab12.maxtext_llama2-70b-fp8-1024gpus
export SBATCH_GRES=gpu:8
export NCCL_IB_HCA==mlx5_0,mlx5_1
export WHO='it'"'"'s me'
timeout --kill-after=20 600 sbatch --parsable --no-requeue --output=/lustre/nemo/maxtext_llama2/slurm-%j.out -A research -p gpu -N 128 /lustre/nemo/maxtext_llama2/launch.sh </dev/null
