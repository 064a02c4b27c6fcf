#!/usr/bin/env bash
# The anchor in MaxText: trains the shape of the proxy's case 8b-8l on one GPU, with the flags of MaxText's own GPU recipes.
#
#   bash tests/bench/anchors/maxtext.sh WHEELS [SETTING=VALUE ...]
#
# WHEELS is a folder with the wheels of docs/proxy.md; Python's own packages have the rest. Steps 15 to 29 are measured: the ones
# before warm the GPU up. Further settings are MaxText's and replace those here.
set -euo pipefail
wheels=$1
shift
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$wheels"/*.whl
# tokamax imports this for its benchmarks; the package itself has 32 MB, and no training needs it.
mkdir -p "$site/xprof/cli/tools"
touch "$site/xprof/cli/tools/get_kernel_stats_tool.py"
export PYTHONPATH=$site DECOUPLE_GCLOUD=TRUE
export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_enable_triton_gemm=false"
export XLA_PYTHON_CLIENT_MEM_FRACTION=0.94
# minimal_with_context keeps the results of all products and of attention, so that nothing large is computed twice.
python3 -m maxtext.trainers.pre_train.train "$site/maxtext/configs/base.yml" \
  run_name=anchor base_output_directory="$site/out" model_name=llama3.1-8b override_model_config=true \
  base_num_decoder_layers=8 per_device_batch_size=1 gradient_accumulation_steps=8 max_target_length=8192 \
  hardware=gpu attention=cudnn_flash_jax remat_policy=minimal_with_context scan_layers=false \
  dtype=bfloat16 weight_dtype=float32 dataset_type=synthetic reuse_example_batch=1 steps=30 \
  enable_checkpointing=false enable_tensorboard=false log_config=false skip_jax_distributed_system=true jax_cache_dir= "$@" 2>&1 |
  grep --line-buffered -vE 'DECOUPLED|transformers|PjRt|ptxas' |
  awk '{ print; fflush() }
    match($0, /completed step: [0-9]+, seconds: [0-9.]+/) {
      split(substr($0, RSTART, RLENGTH), part, /[:,] */)
      if (part[2] >= 15) { sum += part[4]; count++ }
    }
    END { if (count) printf "anchor mean of steps 15 to 29: %.4f s\n", sum / count }'
