"""NeMo 1's log: the configuration and one bar that is drawn again and again.

NVIDIA/NeMo v2.0.0 (24.09) and v2.1.0 (24.12): examples/nlp/language_modeling/megatron_gpt_pretraining.py L38 (the configuration),
nemo/collections/nlp/parts/nlp_overrides.py L1729 (the bar; it is drawn twice a step, first with the old figures). Numbers as
Lightning pads tqdm's (src/lightning/pytorch/callbacks/progress/tqdm_progress.py). The first line, one for each rank, is of
NVIDIA/dgxc-benchmarking v24.11.1: nemotron/configure.sh, and so are the keys (nemotron4-15b-synth.yaml, llama3.1_405b.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.printed import dgxc, lightning, nccl
from tests.printed.lightning import noted
from tests.printed.run import Job, Page, after_start, parameters, stamp

_MODELS = {"llama3": "llama3.1", "nemotron4": "nemotron4"}


def shown(value: float) -> str:
    """tqdm's `format_num` and Lightning's padding to 5 characters."""
    text = str(value)
    short = f"{value:.3g}".replace("e+0", "e+").replace("e-0", "e-")
    found = short if len(short) < len(text) else text
    if "e" not in found:
        if "." not in found and len(found) < 5:
            found += "."
        found += "0" * (5 - len(found))
    return found


def clock(seconds: float) -> str:
    """tqdm's `format_interval`."""
    hours, rest = divmod(int(seconds), 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"


def figures(metrics: Mapping[str, float | str]) -> str:
    """Behind the bar's clock."""
    return "".join(
        f", {name}={value if isinstance(value, str) else shown(value)}" for name, value in metrics.items()
    )


def drawn(done: int, total: int, elapsed: float, left: float, behind: str = "") -> str:
    """The bar; `elapsed` and `left` in s, `behind` the figures of a step."""
    filled = "█" * (10 * min(done, total) // total)
    return f"Epoch 0: : {100 * done // total:3d}%|{filled:<10}| {done}/{total} [{clock(elapsed)}<{clock(left)}{behind}]"


def bar(
    index: int,
    seconds: float = 10.07,
    *,
    count: int | None = None,
    gbs: int = 1024,
    loss: float | None = None,
) -> str:
    """That of a step of 50, whose loss falls, behind so many."""
    metrics: dict[str, float | str] = {
        "v_num": "x1y2",
        "reduced_train_loss": 7.31 - index / 100 if loss is None else loss,
        "global_step": float(index),
        "consumed_samples": float((index + 1) * gbs),
        "train_step_timing in s": seconds,
    }
    return drawn(index + 1 if count is None else count, 50, 477, 0, figures(metrics))


def configuration(job: Job) -> str:
    """What `OmegaConf.to_yaml(cfg)` prints, as far as it tells the run."""
    case, model = job.case, job.case.model
    fp8 = case.dtype == "fp8"
    return f"""
run:
  name: {_MODELS.get(case.recipe, case.recipe)}-{case.size}
  results_dir: /results
  time_limit: '4:00:00'
trainer:
  num_nodes: {job.nodes}
  devices: {job.per_node}
  accelerator: gpu
  precision: bf16
  logger: false
  enable_checkpointing: false
  max_epochs: null
  max_steps: {job.total}
  log_every_n_steps: 1
  val_check_interval: {job.total}
  limit_val_batches: 1
exp_manager:
  explicit_log_dir: /results/results
  create_checkpoint_callback: false
  log_step_timing: true
  step_timing_kwargs:
    sync_cuda: true
    buffer_size: {job.averaged}
model:
  micro_batch_size: {case.mbs}
  global_batch_size: {case.gbs}
  rampup_batch_size: null
  context_parallel_size: {case.cp}
  tensor_model_parallel_size: {case.tp}
  pipeline_model_parallel_size: {case.pp}
  virtual_pipeline_model_parallel_size: {case.vp if case.vp > 1 else "null"}
  encoder_seq_length: {case.sequence_length}
  max_position_embeddings: {case.sequence_length}
  num_layers: {model.layers}
  hidden_size: {model.hidden}
  ffn_hidden_size: {model.ffn}
  num_attention_heads: {model.heads}
  num_query_groups: {model.query_groups}
  tokenizer:
    library: sentencepiece
    model: /cfg/nemotron_2_256k.model
  sequence_parallel: true
  mcore_gpt: true
  transformer_engine: true
  fp8: {str(fp8).lower()}
  fp8_e4m3: false
  fp8_hybrid: true
  fp8_margin: 0
  ub_tp_comm_overlap: true
  nsys_profile:
    enabled: {str(job.nsys).lower()}
    trace:
    - nvtx
    - cuda
    start_step: 10
    end_step: 10
  data:
    data_impl: mock
    seq_length: {case.sequence_length}
  gc_interval: 12
  fp8_params: {str(fp8).lower()}
"""


def _head(page: Page, job: Job) -> None:
    case = job.case
    info = dgxc.info(
        "nemo",
        model=_MODELS.get(case.recipe, case.recipe),
        size=case.model_name,
        nodes=job.nodes,
        devices=job.per_node,
        dtype=case.dtype,
        release=job.release,
        job=job.job_id,
        config=f" model.global_batch_size={case.gbs} trainer.num_nodes={job.nodes} trainer.max_steps={job.total} "
        f"model.tensor_model_parallel_size={case.tp} model.fp8={case.dtype == 'fp8'} exp_manager.create_checkpoint_callback=False "
        f"model.nsys_profile.enabled={job.nsys}",
    )
    page.add(*[info] * job.style.ranks)
    page.add(*["e938df32aa0e15e6b4b0d2d1b0b8a1ee9e0a8c43"] * job.style.ranks)
    now = stamp(after_start(60))
    experiment = "\n    \n    ************** Experiment configuration ***********"
    page.add(noted(experiment, "megatron_gpt_pretraining:38", now))
    page.add(noted(configuration(job).replace("\n", "\n    "), "megatron_gpt_pretraining:39", now))
    if job.style.stderr:
        lightning.start(page, job)
    span, count = case.gpus // case.pp, parameters(case)
    pipeline, tensor = list(range(0, case.gpus, span)), list(range(case.tp))
    dataset = f"GPTDatasetConfig(random_seed=1234, sequence_length={case.sequence_length}, blend=None)"
    lines = {
        "megatron_init:314": f"Rank 0 has tensor model parallel group: {tensor}",
        "megatron_init:353": f"Rank 0 has pipeline model parallel group: {pipeline}",
        "gpt_dataset:45": f"Building dataset splits with cls=MockGPTDataset, sizes=[51200, 1024, 1024], and config={dataset}",
        "num_microbatches_calculator:119": f"setting number of micro-batches to constant {case.ga}",
        "megatron_base_model:604": f"Padded vocab_size: {case.model.vocab}, original vocab_size: 256000, dummy tokens: 0.",
        "megatron_gpt_model:1690": "Pipeline model parallel rank: 0, Tensor model parallel rank: 0, "
        f"Number of model parameters on device: {count / (case.tp * case.pp):.2e}. Number of precise model parameters on device: {count}.",
    }
    page.add(*(noted(text, where, now) for where, text in lines.items()))
    page.tell_of(case, "processes dtype size sequence layers hidden tp pp cp vp mbs")
    page.tell(buffer=job.averaged, job=job.job_id, nodes=job.nodes)


def render(job: Job) -> Page:
    page, rng = Page(), job.rng()
    if not job.style.bare:
        _head(page, job)
    if job.style.nccl:
        nccl.start(page, job, rng)
    elapsed, old = 2.0, ""
    page.head.append(f"\rTraining: 0it [00:00, ?it/s]\rEpoch 0: :   0%|          | 0/{job.total} [00:00<?]")
    for index, (seconds, loss) in enumerate(zip(job.means(), job.losses, strict=True)):
        elapsed += job.times[index] * job.clock
        done = index + 1
        new = figures(
            {
                "reduced_train_loss": loss,
                "global_step": float(index),
                "consumed_samples": float(done * job.case.gbs),
                "train_step_timing in s": seconds,
            }
        )
        at = (done, job.total, elapsed, elapsed / done * (job.total - done))
        both = ["\r" + drawn(*at, old), "\r" + drawn(*at, new)]
        page.steps.append(both if job.style.twice else both[1:])
        old = new
    if old and rng.random() < 0.5:
        # One validation at the end, after which the bar is drawn again with its loss.
        page.tail.append(
            "\rValidation: 0it [00:00, ?it/s]\rValidation DataLoader 0: 100%|██████████| 1/1 [00:01<00:00]"
        )
        page.tail.append("\r" + drawn(*at, f"{old}, val_loss=6.250"))
    page.tail.append("\n")
    if job.style.stderr:
        page.end(f"`Trainer.fit` stopped: `max_steps={job.total}` reached.")
    page.tell(gbs=job.case.gbs, steps=job.total)
    return page
