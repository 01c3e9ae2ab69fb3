"""The training script of lesson 08, and the files that start it: run as far as one can without a cluster."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from importlib.resources import files

import pytest
import torch
import yaml
from torch.distributed.run import get_args_parser

from tools.ports import free_port

JOBS = files("amp_lessons.course.lessons") / "jobs"
SCRIPT, SLURM, KUBERNETES = (JOBS / name for name in ("train.py", "slurm.sbatch", "kubernetes.yaml"))
MEETING = """
import json, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank())
dist.all_reduce(total)
told = json.dumps({"rank": dist.get_rank(), "sum": total.item(), "words": sys.argv[1:]})
os.write(1, f"{told}\\n".encode())  # in one piece: the other rank writes into the same pipe
dist.destroy_process_group()
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def run(command, **environment):
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def torchrun(ranks, *options):
    (told,) = run([*TORCHRUN, "--standalone", f"--nproc-per-node={ranks}", SCRIPT, *map(str, options)])
    return told


def alone(*options):
    """Run the script on one rank, telling it what torchrun would: that saves a process."""
    here = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    (told,) = run([sys.executable, SCRIPT, *map(str, options)], MASTER_PORT=str(free_port()), **here)
    return told


# rarely a rank of gloo's aborts at its end, in C++: "terminate called without an active exception"
@pytest.mark.flaky(reruns=2, only_rerun="SIGABRT")
@pytest.mark.thorough
def test_losses_do_not_depend_on_ranks_that_go_on_from_each_others_checkpoints(tmp_path):
    options = ("--device=cpu", "--strategy=fsdp2", "--dtype=fp16", "--batch=96")
    straight = alone(*options, "--steps=6")
    first = torchrun(2, *options, "--steps=3", "--checkpoint", tmp_path)
    second = alone(*options, "--steps=3", "--checkpoint", tmp_path)
    assert (straight["ranks"], first["ranks"], first["backend"], second["first_step"]) == (1, 2, "gloo", 3)
    assert first["losses"] + second["losses"] == pytest.approx(straight["losses"], rel=0.01)
    assert second["losses"][-1] < 0.6 * first["losses"][0]


def test_a_batch_is_shared_out_evenly_or_not_at_all():
    own_part = runpy.run_path(str(SCRIPT))["own_part"]
    assert sorted(i for rank in range(3) for i in range(12)[own_part(12, rank, 3)]) == list(range(12))
    with pytest.raises(SystemExit, match="--batch is divisible by the number of ranks, 2, not 3"):
        own_part(3, 0, 2)


def stand_in(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.mark.thorough
def test_the_slurm_script_starts_torchruns_that_find_each_other(tmp_path):
    assert subprocess.run(["bash", "-n", SLURM]).returncode == 0
    stand_in(tmp_path, "scontrol", 'echo "scontrol $*" >&2; echo 127.0.0.1; sleep 0.2; echo unreachable')
    # as often as there are nodes, at once, without the options that are srun's own
    stand_in(
        tmp_path,
        "srun",
        "[[ $2 == --cpus-per-task=32 ]] || exit 2; shift 2\n"
        'for ((i = 0; i < SLURM_JOB_NUM_NODES; i++)); do "$@" & pids+=($!); done\n'
        'for pid in "${pids[@]}"; do wait "$pid" || exit 1; done',
    )
    stand_in(tmp_path, "torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"')
    (tmp_path / SCRIPT.name).write_text(MEETING)
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "1"}
    slurm |= {"SLURM_CPUS_PER_TASK": "32", "SLURM_JOB_ID": "42"}
    slurm |= {"SLURM_SUBMIT_DIR": str(tmp_path), "RDZV_PORT": str(free_port())}
    path = f"{tmp_path}:{os.environ['PATH']}"
    told = run(["bash", SLURM, "--strategy=fsdp2", "--steps=2"], PATH=path, **slurm)
    assert sorted(each["rank"] for each in told) == [0, 1]
    assert all(each["sum"] == 1 and each["words"] == ["--strategy=fsdp2", "--steps=2"] for each in told)


def test_slurm_is_asked_for_one_task_a_node():
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", SLURM.read_text("utf-8"), re.MULTILINE))
    assert asked["ntasks-per-node"] == "1"
    assert int(asked["nodes"]) > 1
    assert int(asked["gpus-per-node"]) > 1
    assert int(asked["cpus-per-task"]) > 1


@pytest.fixture(scope="module")
def kubernetes():
    service, job = yaml.safe_load_all(KUBERNETES.read_text("utf-8"))
    return service, job


def test_the_pods_are_those_that_torchrun_expects(kubernetes):
    _, job = kubernetes
    (container,) = job["spec"]["template"]["spec"]["containers"]
    program, *command = container["command"]
    command = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in command]
    told = get_args_parser().parse_args(command)
    assert program == "torchrun"
    assert job["spec"]["completionMode"] == "Indexed"
    assert int(told.nnodes) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert int(told.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    assert told.node_rank == 1
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert told.training_script == f"{mounted['script']}/{SCRIPT.name}"
    train = runpy.run_path(str(SCRIPT))
    assert train["arguments"](told.training_script_args).strategy == "fsdp2"


def test_the_first_pod_has_the_name_that_all_look_for(kubernetes):
    service, job = kubernetes
    pods = job["spec"]["template"]["spec"]
    name, subdomain = job["metadata"]["name"], pods["subdomain"]
    assert f"--master-addr={name}-0.{subdomain}" in pods["containers"][0]["command"]
    assert service["metadata"]["name"] == subdomain
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert pods["volumes"][0]["configMap"]["name"] in KUBERNETES.read_text("utf-8").partition("apiVersion")[0]


def test_kubernetes_takes_the_file(kubernetes):
    validate = pytest.importorskip("kubernetes_validate", reason="its schemas are 100 MB").validate
    for part in kubernetes:
        validate(part, "1.32", strict=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_gpus_train_through_nccl(ranks, strategy):
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    command = [*TORCHRUN, "--standalone", f"--nproc-per-node={ranks}", SCRIPT, f"--strategy={strategy}"]
    (told,) = run([*command, "--dtype=bf16", "--steps=6"])
    assert (told["ranks"], told["backend"]) == (ranks, "nccl")
    assert told["losses"][-1] < 0.6 * told["losses"][0]
