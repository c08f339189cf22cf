"""Workers end with the process that started them, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from backends import BACKENDS
from probe_env import is_alive, wait_until

SCRIPT = """
import os, signal, sys
from jaxmtrl.types import Task

if __name__ == "__main__":
    from backends import pool_maker

    pool = pool_maker(sys.argv[2])(step_timeout_s=60)
    pool.reset(0, Task(id="a", seed=0))
    pool.receive(None)
    for action in ("pid", "sleeper"):
        pool.step(0, action)
        print(pool.receive(None)[0].step.observation, flush=True)
    pool.step(0, "sleep 600")
    if sys.argv[1] == "raise":
        raise RuntimeError("the parent is broken")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("end", "code"), [("raise", 1), ("kill", -signal.SIGKILL)])
def test_a_parent_that_dies_leaves_no_orphans(tmp_path, end, code, backend):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root, here = Path(__file__).parents[2], Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (root, here.parent, here)))}
    done = subprocess.run(
        [sys.executable, str(script), end, backend], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    pids = [int(line) for line in done.stdout.split("\n") if line.isdecimal()]
    assert len(pids) == 2
    wait_until(lambda: not any(is_alive(pid) for pid in pids), seconds=5.0 if backend == "multiprocess" else 20.0)
