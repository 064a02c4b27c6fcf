"""The script of Megatron GPT-3 on AKS, run by bash: how it starts torchrun, and what it refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.system.support import until
from tests.unit import aks, examples
from tests.unit.backends.kubernetes.test_gpt3_aks import own

# As the chart's has it at a01b073, but for what a timed run leaves out.
ARGUMENTS = """\
--nproc_per_node 8 --nnodes 64 --rdzv_id {name} --rdzv_backend c10d --rdzv_endpoint {name}-master-0:23456
/megatron-lm/pretrain_gpt.py
--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
--attention-backend auto
--micro-batch-size 1 --global-batch-size 8192 --train-iters 100 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95
--init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6
--lr-warmup-fraction .001 --lr-decay-iters 430000
--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --sequence-parallel --use-distributed-optimizer
--data-cache-path {folder}/data/datacache
--train-data-path {files}
--vocab-file {data}/../bpe/vocab.json --merge-file {data}/../bpe/merges.txt
--log-interval 10 --tensorboard-dir {folder}/data/logs/{name} --log-throughput
"""


def test_torchrun_is_started_as_it_was_published(tmp_path: Path) -> None:
    pod = aks.Pod(tmp_path, aks.made(), files=40)
    done = pod.run()
    assert (done.returncode, done.stderr) == (0, "")
    # The last 30 of 40 are kept: 15 for validation, 15 for test.
    files = " ".join(f"1.0 {pod.data}/chunk_{number:02d}" for number in range(10))
    # And the throughput, which the chart's script does not print.
    wanted = ARGUMENTS.format(name=aks.NAME, folder=tmp_path, data=pod.data, files=files)
    assert pod.torchrun == wanted.split()
    manifest = examples.recipe_named("gpt3_aks").file.manifest
    assert re.match(str(manifest and manifest.log_begins), done.stdout)
    assert done.stdout == (
        "node the-pod, GPUs and driver: 3 NVIDIA H100 80GB HBM3, 550.144.03\n"
        f"training on 10 of 40 files in {pod.data}\n"
    )


# What the chart's script exports.
EXPORTED = """
OMPI_MCA_coll_hcoll_enable=0 CUDA_DEVICE_ORDER=PCI_BUS_ID NCCL_SOCKET_IFNAME=eth0 UCX_TLS=rc UCX_NET_DEVICES=mlx5_ib0:1
NCCL_IB_PCI_RELAXED_ORDERING=1 NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IGNORE_CPU_AFFINITY=1 NCCL_P2P_NET_CHUNKSIZE=524288
NCCL_PXN_DISABLE=1 NCCL_MIN_NCHANNELS=32 NCCL_TOPO_FILE=/etc/ndv5-topo.xml CUDA_DEVICE_MAX_CONNECTIONS=1
"""
SHARP_EXPORTED = """
SHARP_SMX_UCX_INTERFACE=mlx5_ib0:1 SHARP_COLL_ENABLE_SAT=1 SHARP_COLL_LOG_LEVEL=3
SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING=1 NCCL_COLLNET_ENABLE=1
"""


def pairs(text: str) -> set[tuple[str, ...]]:
    return {tuple(pair.split("=")) for pair in text.split()}


@pytest.mark.parametrize("sharp", [False, True])
def test_its_environment_is_that_of_the_published_script(tmp_path: Path, sharp: bool) -> None:
    pod = aks.Pod(tmp_path, aks.made("175b-sharp-fp16-256gpus" if sharp else "175b-fp16-256gpus"))
    assert pod.run().returncode == 0
    assert pairs(EXPORTED) <= set(pod.environment.items())
    assert (pairs(SHARP_EXPORTED) <= set(pod.environment.items())) is sharp
    assert ("--use-sharp" in pod.torchrun) is sharp
    assert ("NCCL_COLLNET_ENABLE" in pod.environment) is sharp


def test_a_timed_run_saves_loads_and_evaluates_nothing(tmp_path: Path) -> None:
    pod = aks.Pod(tmp_path, aks.made())
    pod.run()
    unwanted = {"--save", "--load", "--eval-interval", "--valid-data-path", "--test-data-path"}
    assert not unwanted & set(pod.torchrun)


WRITING = "175b-checkpoint-fp16-512gpus"


def writing(folder: Path) -> tuple[aks.Pod, Path, dict[str, str]]:
    """A pod that writes a checkpoint, where to, and what it is run with."""
    place = folder / "checkpoints" / aks.NAME
    return aks.Pod(folder, aks.made(WRITING)), place, {"CHECKPOINT_PATH": str(place), "WRITES": "12345"}


def test_a_checkpoint_is_written_once_counted_and_taken_away(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    assert aks.environment(aks.made(WRITING))["CHECKPOINT_PATH"] == f"/data/checkpoints/{aks.NAME}"
    done = pod.run(**given)
    assert (done.returncode, done.stderr) == (0, "")
    assert (pod.option("--save"), pod.option("--save-interval")) == ([str(place)], ["20"])
    assert pod.option("--train-iters") == ["20"]
    assert "--load" not in pod.torchrun
    assert done.stdout.splitlines()[-2:] == [
        f"pacemark: checkpoint of 12345 bytes in 1 files in {place}",
        f"pacemark: removed {place}",
    ]
    assert list(place.parent.iterdir()) == []


def test_the_last_of_the_pods_takes_it_away(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    other = place.with_name(f"{place.name}.pods") / "other-pod"
    other.parent.mkdir(parents=True)
    other.touch()
    first = pod.run(**given)
    assert first.stdout.splitlines()[-1] == f"pacemark: checkpoint of 12345 bytes in 1 files in {place}"
    assert [file.name for file in other.parent.iterdir()] == ["other-pod"]
    assert pod.run(**given, POD="other-pod").stdout.splitlines()[-1] == f"pacemark: removed {place}"
    assert list(place.parent.iterdir()) == []


def test_a_pod_that_fails_takes_it_away_too(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    assert pod.run(**given, ENDS="7").returncode == 7
    assert list(place.parent.iterdir()) == []


def test_a_pod_that_is_asked_to_end_asks_torchrun_and_takes_it_away(tmp_path: Path) -> None:
    pod, place, given = writing(tmp_path)
    process = pod.start(**given, WAITS="yes")
    until((tmp_path / "waits").exists, "torchrun")
    process.terminate()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    assert out.splitlines()[-3:] == [
        "asked to end",
        f"pacemark: checkpoint of 12345 bytes in 1 files in {place}",
        f"pacemark: removed {place}",
    ]
    assert list(place.parent.iterdir()) == []


# The chart's script does not: without it nothing in the log tells the model.
@pytest.mark.parametrize("wanted", ["0", "1"])
def test_the_throughput_is_printed_unless_a_site_does_not_want_it(tmp_path: Path, wanted: str) -> None:
    assert aks.environment(aks.made())["LOG_THROUGHPUT"] == "1"
    pod = aks.Pod(tmp_path, aks.made())
    pod.run(LOG_THROUGHPUT=wanted)
    assert ("--log-throughput" in pod.torchrun) is (wanted == "1")


def test_the_sites_arguments_come_last_and_as_they_are(tmp_path: Path) -> None:
    arguments = ["--recompute-granularity=selective", "--x='$(touch pwned)'"]
    pod = aks.Pod(tmp_path, aks.made(arguments=arguments))
    assert pod.run().returncode == 0
    assert pod.torchrun[-2:] == arguments
    assert not list(tmp_path.rglob("pwned"))


def test_a_longer_sequence_has_as_many_positions(tmp_path: Path) -> None:
    models = (own(sequence_length=8192),)
    pod = aks.Pod(tmp_path, aks.made("tall-fp16-64gpus", models=models))
    pod.run()
    assert pod.option("--max-position-embeddings") == ["8192"]


@pytest.mark.parametrize(
    ("files", "chunks", "said"),
    [
        # The README's sample of 100 downloaded files is one file after preprocessing.
        (
            1,
            "15",
            "1 .bin files in {data} leave none to train on: 15 are kept for validation and 15 for test, "
            "1 - 2 x 15 = -29; prepare more of the data set, or set chunks (CHUNKS) to at most 0",
        ),
        (30, "15", "30 - 2 x 15 = 0; prepare more of the data set, or set chunks (CHUNKS) to at most 14"),
        (0, "0", "no .bin file in {data}: download and preprocess the data set first"),
    ],
)
def test_too_few_files_are_told_at_once(tmp_path: Path, files: int, chunks: str, said: str) -> None:
    pod = aks.Pod(tmp_path, aks.made(chunks=chunks), files=files)
    done = pod.run()
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said.format(data=pod.data) in done.stderr
    assert not pod.started


@pytest.mark.parametrize(("files", "chunks", "trained"), [(1, "0", 1), (31, "15", 1), (72, "15", 42)])
def test_the_files_that_are_left_are_trained_on(
    tmp_path: Path, files: int, chunks: str, trained: int
) -> None:
    pod = aks.Pod(tmp_path, aks.made(chunks=chunks), files=files)
    assert pod.run().returncode == 0
    wanted = [text for number in range(trained) for text in ("1.0", f"{pod.data}/chunk_{number:02d}")]
    assert pod.option("--train-data-path") == wanted


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("preprocessed/chunk_03.idx", "chunk_03.idx is not there; preprocess it again"),
        ("bpe/vocab.json", "vocab.json is not there: preprocessing leaves GPT-2's tokenizer"),
        ("bpe/merges.txt", "merges.txt is not there: preprocessing leaves GPT-2's tokenizer"),
    ],
)
def test_a_file_that_is_missing_is_told_at_once(tmp_path: Path, missing: str, said: str) -> None:
    pod = aks.Pod(tmp_path, aks.made())
    (pod.data.parent / missing).unlink()
    done = pod.run()
    assert done.returncode == 2
    assert said in done.stderr
    assert not pod.started


def test_a_data_set_that_is_not_mounted_is_told(tmp_path: Path) -> None:
    pod = aks.Pod(tmp_path, aks.made(dataset="elsewhere"))
    assert "no .bin file in" in pod.run().stderr


@pytest.mark.parametrize("status", [1, 137])
def test_the_exit_status_of_torchrun_is_that_of_the_pod(tmp_path: Path, status: int) -> None:
    assert aks.Pod(tmp_path, aks.made()).run(ENDS=str(status)).returncode == status


def test_a_node_without_nvidia_smi_is_no_reason_to_stop(tmp_path: Path) -> None:
    pod = aks.Pod(tmp_path, aks.made())
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/bash\nexit 9\n")
    assert pod.run().stdout.startswith("node the-pod, GPUs and driver: unknown\n")
    assert pod.started


def test_gpus_that_differ_are_told_on_one_line(tmp_path: Path) -> None:
    pod = aks.Pod(tmp_path, aks.made())
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/bash\nprintf 'X, 550.%s\\n' 2 1 2\n")
    assert pod.run().stdout.startswith("node the-pod, GPUs and driver: 1 X, 550.1; 2 X, 550.2\n")


def test_the_script_is_bash() -> None:
    script = aks.untouched()[0]["data"]["train_megatron.sh"]
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
