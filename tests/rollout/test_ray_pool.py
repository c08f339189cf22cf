"""What is Ray's own in the pool on a cluster; what both kinds of pool promise is in `test_pool.py`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from backends import pool_maker
from faulty_env import faulty_task
from probe_env import is_alive, wait_until

from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.types import Task

pytestmark = pytest.mark.ray


@pytest.fixture
def make_pool():
    return pool_maker("ray")


def probe_task(seed=0):
    return Task(id=f"probe/{seed}", seed=seed)


def gather(pool, count):
    """The next `count` events, by episode."""
    events = []
    while len(events) < count:
        came = pool.receive(30.0)
        assert came, f"only {events} came"
        events += came
    assert len(events) == count
    return {event.episode: event for event in events}


def ask(pool, episode, action):
    pool.step(episode, action)
    return gather(pool, 1)[episode].step.observation


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def commands():
    """The command lines of all processes."""
    return subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True).stdout


def test_an_actor_that_is_killed_takes_its_process_along_and_is_replaced(make_pool):
    with make_pool(workers=2) as pool:
        for episode in range(4):  # 0 and 2 on one worker, 1 and 3 on the other
            pool.reset(episode, probe_task(episode))
        gather(pool, 4)
        pid, sleeper, folder = int(ask(pool, 0, "pid")), int(ask(pool, 2, "sleeper")), ask(pool, 0, "cwd")
        assert is_alive(sleeper) and os.path.isdir(folder)
        pool.step(0, "sleep 600")
        pool.step(1, "sleep 0.1")
        os.kill(parent_of(pid), signal.SIGKILL)
        events = gather(pool, 3)
        assert re.search(r"'probe/0', turn 3: was lost by Ray \(\w*Actor\w*Error: .* in step 3; ", events[0].failure)
        assert "turn 1: was lost with its worker, which was lost by Ray" in events[2].failure
        assert events[1].kind == "step"
        wait_until(lambda: not any(is_alive(child) for child in (pid, sleeper)) and not os.path.exists(folder))
        pool.release(0)
        pool.reset(0, probe_task(9))
        assert gather(pool, 1)[0].observation == "start 9"
        assert int(ask(pool, 0, "pid")) != pid


def test_an_idle_actor_that_is_killed_is_noticed(make_pool):
    with make_pool() as pool:
        pool.reset(0, probe_task())
        gather(pool, 1)
        os.kill(parent_of(int(ask(pool, 0, "pid"))), signal.SIGKILL)
        assert "was lost with its worker, which was lost by Ray" in gather(pool, 1)[0].failure


def test_a_stopped_actor_is_one_that_hangs(make_pool):
    """SIGSTOP: nothing in it answers any more, not even the request to end."""
    with make_pool(step_timeout_s=0.5) as pool:
        pool.reset(0, probe_task())
        gather(pool, 1)
        pid = int(ask(pool, 0, "pid"))
        host = parent_of(pid)
        os.kill(host, signal.SIGSTOP)
        pool.step(0, "pid")
        assert re.search(r"hung for 0\.\d s in step 2", gather(pool, 1)[0].failure)
        pool.release(0)
        pool.reset(0, probe_task(1))
        assert gather(pool, 1)[0].observation == "start 1"
    wait_until(lambda: not is_alive(host) and not is_alive(pid), seconds=30.0)


def test_rounds_of_faults_leave_no_process_and_no_folder(make_pool):
    seen, folders = set(), set()
    with make_pool("probe_env:make", workers=2, step_timeout_s=0.5) as pool:
        for fault in ("sleep 600", "kill", "sleep 600", "kill"):
            for episode in (0, 1):
                pool.reset(episode, probe_task(episode))
            gather(pool, 2)
            for episode in (0, 1):
                pid = int(ask(pool, episode, "pid"))
                seen |= {pid, parent_of(pid)}
                folders.add(ask(pool, episode, "cwd"))
            if fault == "kill":
                os.kill(int(ask(pool, 0, "pid")), signal.SIGKILL)
            else:
                pool.step(0, fault)
            assert gather(pool, 1)[0].kind == "failure"
            pool.release(0)
            pool.release(1)
        assert len(seen) == 2 * (2 + 3)  # two workers at first, and a new one after each of the first three faults
    wait_until(lambda: not any(map(is_alive, seen)) and not any(map(os.path.exists, folders)), seconds=10.0)
    wait_until(lambda: not any(folder in commands() for folder in folders))  # the guards' commands name them


def test_episodes_are_those_of_the_pool_of_processes(make_pool):
    played = []
    for make in (make_pool, pool_maker("multiprocess")):
        with make(workers=2) as pool:
            for episode in range(4):
                pool.reset(episode, probe_task(episode))
            texts = [event.observation for _, event in sorted(gather(pool, 4).items())]
            for turn in range(3):
                for episode in range(4):
                    pool.step(episode, f"play {turn}")
                texts += [str(event.step) for _, event in sorted(gather(pool, 4).items())]
        played.append(texts)
    assert played[0] == played[1] and len(set(played[0])) == 16


def test_many_workers_share_a_cpu(make_pool):
    """Six workers of a tenth on the four CPUs of the cluster, and each waits for no other."""
    with make_pool("faulty_env:make", workers=6, cpus=0.1) as pool:
        for episode in range(6):
            pool.reset(episode, faulty_task("none"))
        events = gather(pool, 6)
        assert len({re.search(r"pid (\d+)", event.observation).group(1) for event in events.values()}) == 6


def test_a_cluster_that_is_full_says_so(make_pool):
    settings = {"cpus": 64.0, "reset_timeout_s": 0.2, "startup_allowance_s": 0.2}
    with make_pool(**settings) as pool, pytest.raises(EnvironmentFailure) as raised:
        while True:
            pool.receive(30.0)
    text = str(raised.value)
    assert re.search(r"hung for 0\.\d s: Ray has [\d.]+ CPUs free and a worker reserves 64\. Add nodes, or", text)
    assert "rollout.ray_cpus" in text


def test_a_pool_outlives_its_cluster_without_starting_another():
    """Closing after Ray itself was shut down raises nothing; Ray's own calls would connect again, or try to."""
    says = run_script(
        """
        from jaxmtrl.errors import EnvironmentFailure
        pool = RayPool("probe_env:make", {}, workers=1, **SETTINGS)
        pool.reset(0, Task(id="a", seed=0))
        say(pool.receive(None)[0].observation)
        other = RayPool("probe_env:make", {}, workers=1, **SETTINGS)
        ray.shutdown()
        pool.close()
        try:
            other.receive(10.0)
        except EnvironmentFailure as err:
            say(err)
        other.close()
        say(ray.is_initialized())
        """
    )
    assert says == ["start 0", "probe_env:make: Ray was shut down while the pool was open; make another pool", "False"]


def test_a_node_that_dies_costs_its_episodes_and_the_rest_plays_on():
    """The head has no CPU to give; workers are on one node, and after its death on the other."""
    says = run_script(
        """
        from ray.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        first = cluster.add_node(num_cpus=1)
        pool = RayPool("probe_env:make", {}, workers=2, address=cluster.address, **SETTINGS)

        def two_events():
            events = []
            while len(events) < 2:
                events += pool.receive(60.0)
            return sorted(events, key=lambda event: event.episode)

        for episode in (0, 1):
            pool.reset(episode, Task(id=f"probe/{episode}", seed=episode))
        two_events()
        pool.step(0, "sleep 600")
        cluster.add_node(num_cpus=1)
        cluster.remove_node(first, allow_graceful=False)
        for event in two_events():
            say(event.failure)
        for episode in (0, 1):
            pool.release(episode)
            pool.reset(episode, Task(id=f"probe/{episode}", seed=episode))
        say([event.observation for event in two_events()])
        say(pool.receive(1.0))
        pool.close()
        ray.shutdown()
        cluster.shutdown()
        """
    )
    assert "'probe/0', turn 1: was lost by Ray" in says[0] and "in step 1; the worker was killed" in says[0]
    assert "'probe/1', turn 0: was lost with its worker, which was lost by Ray" in says[1]
    assert says[2:] == ["['start 0', 'start 1']", "[]"]


def test_a_cluster_is_joined_by_its_address_by_ray_client_too():
    """Both kinds of address lead there; one where nobody listens is named at once."""
    says = run_script(
        """
        from ray.cluster_utils import Cluster
        from jaxmtrl.errors import ConfigError
        port = free_port()
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "ray_client_server_port": port})
        for address in (cluster.address, f"ray://127.0.0.1:{port}"):
            with RayPool("probe_env:make", {}, workers=1, address=address, **SETTINGS) as pool:
                pool.reset(0, Task(id="a", seed=0))
                say(pool.receive(60.0)[0].observation)
                pool.step(0, "pid")
                os.kill(int(pool.receive(60.0)[0].step.observation), signal.SIGKILL)
                say(pool.receive(60.0)[0].failure)
            ray.shutdown()
        try:
            RayPool("probe_env:make", {}, workers=1, address="127.0.0.1:1", **SETTINGS)
        except ConfigError as err:
            say(err)
        cluster.shutdown()
        """
    )
    killed = "probe_env:make, task 'a', turn 1: was lost with its worker, which was killed by SIGKILL"
    assert says[:4] == ["start 0", killed] * 2
    assert "rollout.ray_address" in says[4] and "got '127.0.0.1:1', and no Ray cluster is there" in says[5]


def test_ctrl_c_is_the_drivers_alone():
    says = run_script(
        """
        pool = RayPool("probe_env:make", {}, workers=1, **SETTINGS)
        pool.reset(0, Task(id="a", seed=0))
        pool.receive(None)
        pool.step(0, "pid")
        pid = pool.receive(None)[0].step.observation
        try:
            os.killpg(os.getpgrp(), signal.SIGINT)
            pool.receive(10.0)
        except KeyboardInterrupt:
            say("interrupted")
        os.kill(int(pid), signal.SIGINT)  # if somebody sends it there
        pool.step(0, "pid")
        say(pool.receive(None)[0].step.observation == pid)
        pool.close()
        """
    )
    assert says == ["interrupted", "True"]


HEAD = """
import os, signal, socket
import ray
from jaxmtrl.rollout.ray_pool import RayPool
from jaxmtrl.types import Task

def say(what):
    for line in str(what).split(chr(10)):
        print("##", line, flush=True)

def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]

SETTINGS = {"step_timeout_s": 60, "reset_timeout_s": 60, "recycle_after": 0}
"""


def run_script(text):
    """What a script has to say, run in a session of its own; it begins with HEAD."""
    root, here = Path(__file__).parents[2], Path(__file__).parent
    environment = os.environ | {
        "PYTHONPATH": f"{root}{os.pathsep}{here}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "100",  # 30 s are too few on a busy machine
    }
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(text)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.removeprefix("## ") for line in done.stdout.split("\n") if line.startswith("## ")]
