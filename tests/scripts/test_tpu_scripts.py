"""The scripts for Cloud TPU: sound as shell, and a dry run prints every command and runs none."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "tpu").glob("*.sh"))
CONFIG = "configs/tpu/qwen2.5_7b_v5e-16.yaml"


def dry(script: str, *arguments: str) -> subprocess.CompletedProcess:
    """A dry run where gcloud is nowhere to be found."""
    return subprocess.run(
        ["bash", f"tpu/{script}", *arguments, "--dry-run"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PATH": "/usr/bin:/bin"},
        timeout=30,
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_is_sound(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    shellcheck = Path(sysconfig.get_path("scripts"), "shellcheck")
    found = subprocess.run([shellcheck, "-x", script], capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stdout


def test_a_slice_is_made_and_every_host_set_up():
    done = dry("create.sh", "agent", "v5litepod-16", "us-west4-a", "--spot")
    assert done.returncode == 0, done.stderr
    made, packed, copied, unpacked, set_up = (shlex.split(line) for line in done.stdout.splitlines())
    assert made[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "create", "agent"]
    assert {"v5litepod-16", "us-west4-a", "v2-alpha-tpuv5-lite", "--spot"} <= set(made)
    assert packed[0] == "bash" and "git ls-files" in packed[2]
    assert copied[4] == "scp" and "all" in copied and "all" in unpacked
    assert set_up[-1] == "cd jaxmtrl && bash tpu/setup_host.sh"


def test_training_starts_on_every_host_with_the_overrides_as_given():
    override = "rl={iterations: 3, tasks_per_iteration: 4}"
    done = dry("run_all_hosts.sh", "agent", "us-west4-a", CONFIG, override)
    assert done.returncode == 0, done.stderr
    remote = shlex.split(done.stdout.splitlines()[0])
    assert remote[:5] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh"] and "all" in remote
    words = shlex.split(remote[-1].replace(";", " ; "))
    assert "--hosts" in words and CONFIG in words and override in words
    assert "tpu/flags.env" in words


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("create.sh", ("agent", "v5litepod-8"), "NAME TYPE ZONE"),
        ("create.sh", ("agent", "v9-8", "zone"), "unknown type v9-8"),
        ("create.sh", ("agent", "v4-8", "zone", "--spto"), "unknown option --spto"),
        ("run_all_hosts.sh", ("agent", "zone", "configs/none.yaml"), "there is no configs/none.yaml"),
        ("run_all_hosts.sh", ("agent", "zone", CONFIG, "--tries", "0"), "--tries: got 0"),
        ("run_all_hosts.sh", ("agent", "zone", CONFIG, "--pause", "abc"), "--pause: got abc"),
        ("run_all_hosts.sh", ("agent", "zone", CONFIG, "--type", "bogus"), "--type: got bogus"),
        ("run_all_hosts.sh", ("agent", "zone", str(ROOT / CONFIG)), "wanted a path within this working tree"),
        ("create.sh", ("it's", "v4-8", "zone"), "NAME: got it's"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(script, arguments, said):
    done = dry(script, *arguments)
    assert done.returncode == 2 and said in done.stderr and not done.stdout


def test_without_gcloud_the_way_to_it_is_told(tmp_path):
    for tool in ("bash", "dirname", "sed"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = subprocess.run(
        ["bash", "tpu/create.sh", "agent", "v4-8", "zone"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path)},
        timeout=30,
    )
    assert done.returncode == 2 and "gcloud is not installed" in done.stderr


def test_a_lost_host_means_a_new_start_and_a_wrong_config_does_not(tmp_path):
    """With a gcloud that fails twice and then succeeds; and one whose command was refused (code 2)."""
    log = tmp_path / "log"
    fake = tmp_path / "gcloud"
    for codes, starts, end in (((3, 3, 0), 3, 0), ((2, 0), 1, 2)):
        (tmp_path / "codes").write_text("\n".join(map(str, codes)) + "\n")
        log.write_text("")
        fake.write_text(
            "#!/bin/bash\n"
            f'echo "$*" >> {log}\n'
            'case "$*" in *describe*) echo READY ;; *train\\ --hosts*)\n'
            f"    code=$(head -1 {tmp_path}/codes); sed -i 1d {tmp_path}/codes; exit $code ;;\n"
            "esac\n"
        )
        fake.chmod(0o755)
        done = subprocess.run(
            ["bash", "tpu/run_all_hosts.sh", "agent", "zone", CONFIG, "--logs", str(tmp_path / "logs"), "--pause", "0"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"},
            timeout=30,
        )
        assert done.returncode == end, done.stderr
        assert sum("train --hosts" in line for line in log.read_text().splitlines()) == starts
