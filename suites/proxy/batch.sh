#!/bin/bash
# The batch job: runs the program beside it on this node, in a container if the site names one.
set -eu

container=()
if [ -n "$PROXY_IMAGE" ]; then
  container=(
    --container-image="$PROXY_IMAGE"
    --container-mounts="$PWD:$PWD"
    --container-workdir="$PWD"
    --no-container-mount-home
  )
fi
# One process for all GPUs of a node, on all its CPUs. PROXY_OPTIONS are several words.
exec srun --ntasks="${SLURM_NNODES:-1}" --cpus-per-task="$SLURM_CPUS_ON_NODE" --mpi=none "${container[@]}" \
  "$PROXY_PYTHON" -u -B train.py $PROXY_OPTIONS --nodes "${SLURM_NNODES:-1}"
