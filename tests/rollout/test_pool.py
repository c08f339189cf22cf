"""The worker pool: what breaks costs its own episodes only, nothing is left behind, and nobody waits for ever."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import probe_env
import pytest
from backends import BACKENDS, pool_maker
from faulty_env import faulty_task
from probe_env import is_alive, wait_until

from jaxmtrl.errors import EnvironmentFailure
from jaxmtrl.types import Task


@pytest.fixture(params=BACKENDS)
def make_pool(request):
    return pool_maker(request.param)


def probe_task(seed=0, **payload):
    return Task(id=f"probe/{seed}", seed=seed, payload=payload)


def next_event(pool, timeout_s=20.0):
    events = pool.receive(timeout_s)
    assert len(events) == 1, events
    return events[0]


def ask(pool, episode, action):
    """One step's observation; the pool must have nothing else under way."""
    pool.step(episode, action)
    event = next_event(pool)
    assert event.kind == "step" and event.episode == episode, event
    return event.step.observation


def open_all(pool, tasks):
    """Opens episodes 0, 1, ... and returns once every one has its first observation."""
    for episode, task in enumerate(tasks):
        pool.reset(episode, task)
    seen = {}
    while len(seen) < len(tasks):
        seen |= {event.episode: event for event in pool.receive(20.0)}
    assert all(event.kind == "observation" for event in seen.values()), seen
    return [seen[episode].observation for episode in range(len(tasks))]


def play_all(pool, tasks, already_open=False, action="play"):
    """Plays every task to its end; what was seen of each, without process ids, and the failures."""
    if not already_open:
        for episode, task in enumerate(tasks):
            pool.reset(episode, task)
    seen = {episode: [] for episode in range(len(tasks))}
    failures, running = {}, set(seen)
    if already_open:
        for episode in running:
            pool.step(episode, action)
    while running:
        for event in pool.receive(20.0):
            assert event.episode in running, f"an event after the end: {event}"
            if event.kind == "failure":
                failures[event.episode] = event.failure
            else:
                text = event.observation if event.step is None else repr(event.step)
                seen[event.episode].append(re.sub(r"pid \d+", "", text))
            if event.kind == "failure" or (event.step is not None and event.step.done):
                running.remove(event.episode)
                pool.release(event.episode)
            else:
                pool.step(event.episode, action)
    return seen, failures


def footprint():
    """Child processes (dead ones that nobody waited for included), open descriptors, threads."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return len(children), len(os.listdir("/proc/self/fd")), threading.active_count()


@contextmanager
def within(seconds):
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


FAULTY_FOUR = [faulty_task("hang", 2), faulty_task("exit", 2), faulty_task("none", seed=2), faulty_task("none", seed=3)]


def test_one_hangs_one_dies_two_are_fine(make_pool):
    with make_pool("faulty_env:make", workers=2) as pool:
        healthy, failures = play_all(pool, FAULTY_FOUR[2:])
        assert not failures and [len(seen) for seen in healthy.values()] == [4, 4]  # a reset and three steps
    with make_pool("faulty_env:make", workers=4, step_timeout_s=2.0) as pool:
        open_all(pool, FAULTY_FOUR)
        with within(6.0):
            seen, failures = play_all(pool, FAULTY_FOUR, already_open=True)
        assert seen[2] == healthy[0][1:] and seen[3] == healthy[1][1:]  # the first observation was read before
        assert sorted(failures) == [0, 1]
        assert re.search(r"faulty_env:make, task 'faulty/hang-2-0', turn 2: hung for 2\.\d s in step 2", failures[0])
        assert re.search(r"task 'faulty/exit-2-0', turn 2: exited with code 1 in step 2", failures[1])
        # The lost workers were replaced: four workers play four episodes, each in a process of its own.
        pids = {re.search(r"pid (\d+)", text).group(1) for text in open_all(pool, [faulty_task("none")] * 4)}
        assert len(pids) == 4


def test_faults_leave_nothing_behind_after_twenty_rounds():
    make_pool = pool_maker("multiprocess")
    make_pool().close()  # starts multiprocessing's own helper, which stays
    patience = time.monotonic() + 5
    while threading.active_count() > 1 and time.monotonic() < patience:
        time.sleep(0.05)  # a thread of an earlier test, on its way out, would be missed later on
    before = footprint()
    with make_pool("faulty_env:make", workers=2, step_timeout_s=0.3) as pool:
        open_all(pool, [faulty_task("none")] * 2)
        with_pool = footprint()
        pool.release(0)
        pool.release(1)
        for round_number in range(20):
            tasks = [faulty_task(("hang", "exit")[round_number % 2], 1), faulty_task("none")]
            open_all(pool, tasks)
            seen, failures = play_all(pool, tasks, already_open=True)
            assert list(failures) == [0] and len(seen[1]) == 3
        assert footprint() == with_pool
        folders = [worker.child.folder for worker in pool._alive]
        assert all(os.path.isdir(folder) for folder in folders)
    assert footprint() == before
    assert not any(os.path.exists(folder) for folder in folders)


def test_a_killed_worker_fails_its_episodes_once_and_takes_its_children_along(make_pool):
    with make_pool(workers=2) as pool:
        open_all(pool, [probe_task(seed) for seed in range(4)])  # 0 and 2 on one worker, 1 and 3 on the other
        pid, other = int(ask(pool, 0, "pid")), int(ask(pool, 1, "pid"))
        sleeper = int(ask(pool, 2, "sleeper"))
        assert pid == int(ask(pool, 2, "pid")) != other and is_alive(sleeper)
        os.kill(pid, signal.SIGKILL)
        events = []
        while len(events) < 2:
            events += pool.receive(5.0)
        assert sorted((event.episode, event.kind) for event in events) == [(0, "failure"), (2, "failure")]
        assert "turn 1: was lost with its worker, which was killed by SIGKILL" in events[0].failure
        wait_until(lambda: not is_alive(sleeper))
        assert pool.receive(0.05) == []
        assert int(ask(pool, 1, "pid")) == other == int(ask(pool, 3, "pid"))
        with pytest.raises(ValueError, match="episode 0 has failed; release it"):
            pool.step(0, "pid")
        pool.release(0)
        pool.reset(0, probe_task(9))
        assert next_event(pool).observation == "start 9"


def test_a_hanging_worker_takes_along_what_shares_it_and_its_children(make_pool):
    with make_pool("probe_env:make", step_timeout_s=0.3) as pool:
        open_all(pool, [probe_task(seed) for seed in range(3)])
        sleeper = int(ask(pool, 1, "sleeper"))
        pool.step(0, "sleep 600")
        pool.step(1, "pid")  # waits behind the sleep
        events = []
        with within(2.0):
            while len(events) < 3:
                events += pool.receive(5.0)
        failures = {event.episode: event.failure for event in events}
        assert re.search(r"'probe/0', turn 1: hung for 0\.\d s in step 1; the worker was killed", failures[0])
        for episode, turn in ((1, 2), (2, 0)):
            lost = f"'probe/{episode}', turn {turn}: was lost with its worker, which hung for 0"
            assert lost in failures[episode] and "in step 1 of task 'probe/0'" in failures[episode]
        wait_until(lambda: not is_alive(sleeper))
        assert pool.receive(0.05) == []


def test_what_an_environment_raises_costs_its_own_episode(make_pool):
    tasks = [faulty_task("raise", 0), faulty_task("raise", 2), faulty_task("none")]
    with make_pool("faulty_env:make") as pool, within(10.0):
        seen, failures = play_all(pool, tasks)
        assert "turn 0: reset raised RuntimeError: broken on purpose at step 0\nTraceback" in failures[0]
        assert "turn 2: step 2 raised RuntimeError: broken on purpose at step 2\nTraceback" in failures[1]
        assert "in _break" in failures[1]
        assert len(seen[1]) == 2 and len(seen[2]) == 4
    with make_pool(options={"close": "raise"}) as pool:
        open_all(pool, [probe_task(0), probe_task(1)])
        pid = ask(pool, 1, "pid")
        pool.step(0, "quit")
        failure = next_event(pool).failure
        assert "step 1 raised SystemExit: 3" in failure and "close is broken too" in failure
        assert ask(pool, 1, "pid") == pid
        os.kill(int(pid), signal.SIGKILL)
        assert next_event(pool).episode == 1  # and not 0, which has failed already
        assert pool.receive(0.05) == []


def test_answers_that_break_the_protocol_fail_and_say_what_was_got(make_pool):
    wanted = {
        "nan": "returned reward float nan, wanted a finite number",
        "text reward": "returned reward str '1', wanted a finite number",
        "no text": "returned observation NoneType None, wanted a str",
        "both ends": "returned done and truncated both",
        "int done": "returned done int 1, wanted a bool",
        "huge reward": "returned reward float 1e+300, wanted a finite number of at most 1e+06",
        "half a surrogate": "returned observation str 'file \\udc80', which is no Unicode text",
        "bad metric": "returned metric 'x' float inf, wanted a finite number",
        "list metrics": "returned metrics list [1.0], wanted a mapping",
    }
    assert wanted.keys() == probe_env.BAD_ANSWERS.keys()
    with make_pool() as pool:
        open_all(pool, [probe_task()] * len(wanted))
        for episode, (action, text) in enumerate(wanted.items()):
            pool.step(episode, action)
            assert f"turn 1: step 1 {text}" in next_event(pool).failure
        pool.reset(50, probe_task(observation=7))
        assert "turn 0: reset returned int 7, wanted a str" in next_event(pool).failure
        pool.reset(51, probe_task())
        assert next_event(pool).observation == "start 0"
        pool.step(51, "numpy")
        result = next_event(pool).step  # numpy's numbers are fine, and arrive as Python's
        assert (result.reward, result.done, result.metrics) == (0.5, False, {"m": 2.0})
        assert type(result.reward) is float and type(result.done) is bool


def test_admissible_actions_are_told_and_wrong_answers_are_named(make_pool):
    wrong = {
        "returned str 'go', wanted a sequence of str": "go",
        "returned command int 3, wanted a str": ["go", 3],
        "raised KeyError": None,
    }
    with make_pool() as pool:
        open_all(pool, [probe_task(admissible=["go", "stay"])])
        pool.ask_admissible(0)
        event = next_event(pool)
        assert event.kind == "admissible" and event.admissible == ("go", "stay")
        assert ask(pool, 0, "play on").startswith("1: on")  # asking is no step
        for episode, (text, answer) in enumerate(wrong.items(), start=1):
            pool.reset(episode, probe_task(**({"admissible": answer} if answer is not None else {})))
            next_event(pool)
            pool.ask_admissible(episode)
            assert f"the list of admissible actions after reset {text}" in next_event(pool).failure
    with make_pool("faulty_env:make") as pool:  # does not know
        open_all(pool, [faulty_task("none")])
        pool.ask_admissible(0)
        assert next_event(pool).admissible is None


def test_a_step_after_the_end_and_a_task_that_cannot_be_sent_fail_in_words(make_pool):
    with make_pool() as pool:
        open_all(pool, [probe_task()])
        for _ in range(4):  # the third ends the episode
            pool.step(0, "play")
        events = []
        while len(events) < 4:
            events += pool.receive(5.0)
        assert [event.kind for event in events] == ["step", "step", "step", "failure"]
        assert "turn 4: step 4 was asked for after the episode's end" in events[3].failure
        pool.reset(1, probe_task(bad=lambda: None))
        assert "the task cannot be pickled" in next_event(pool).failure


def test_bytes_that_are_no_message_end_the_worker_not_the_parent(make_pool):
    with make_pool() as pool:
        open_all(pool, [probe_task()])
        pool.step(0, "garbage")
        with within(5.0):
            failure = next_event(pool).failure
        assert "turn 1: sent something that is no reply (it starts with b'garbage garbage '" in failure
        pool.release(0)
        pool.reset(0, probe_task(1))
        assert next_event(pool).observation == "start 1"


def test_an_answer_counts_however_late_it_is_read(make_pool):
    with make_pool(step_timeout_s=0.3) as pool:
        open_all(pool, [probe_task()])
        pool.step(0, "big 3000000")  # more than a channel holds: the worker is still sending when the deadline is over
        time.sleep(1.0)
        assert len(next_event(pool).step.observation) == 3_000_000


def test_episodes_do_not_depend_on_the_number_of_workers(make_pool):
    tasks = [probe_task(seed) for seed in range(7)]
    played = []
    for workers in (1, 2, 3):
        with make_pool(workers=workers) as pool:
            seen, failures = play_all(pool, tasks)
        assert not failures
        played.append(seen)
    assert played[0] == played[1] == played[2]
    assert len({str(seen) for seen in played[0].values()}) == 7  # and they do depend on their seeds


def test_workers_are_light_quiet_private_and_find_what_the_parent_finds(make_pool, capfd, tmp_path, monkeypatch):
    import jax  # noqa: F401  the parent has it; a worker must not get it from there

    (tmp_path / "games").mkdir()
    monkeypatch.chdir(tmp_path)
    with make_pool(options={"exists": "games"}) as pool:  # a relative path means the parent's folder
        monkeypatch.chdir("/")
        open_all(pool, [probe_task()])
        assert ask(pool, 0, "modules jax flax optax pydantic ray jaxmtrl.rollout.pool jaxmtrl.rollout.worker") == (
            "jaxmtrl.rollout.worker"
        )
        folder = ask(pool, 0, "cwd")
        assert os.path.basename(folder).startswith("jaxmtrl-worker-") and os.listdir(folder) == []
        ask(pool, 0, "print")
        assert len(ask(pool, 0, "big 3000000")) == 3_000_000
        os.kill(int(ask(pool, 0, "pid")), signal.SIGKILL)
        assert next_event(pool).kind == "failure"
        pool.reset(1, probe_task())  # a replacement still resolves "games" from the first folder
        assert next_event(pool).kind == "observation"
    assert "junk" not in capfd.readouterr().out
    wait_until(lambda: not os.path.exists(folder))


def test_workers_warm_up_before_anything_is_asked_of_them(make_pool, tmp_path):
    warm = tmp_path / "warm"
    with make_pool(options={"warm_up": str(warm)}) as pool:
        wait_until(warm.exists, seconds=20.0)
        assert not any(worker.busy for worker in pool._alive)


def test_what_goes_wrong_in_warming_up_stops_nobody(make_pool):
    with make_pool(options={"warm_up": "raise"}) as pool:
        assert open_all(pool, [probe_task(7)]) == ["start 7"]


def test_events_tell_which_worker_was_at_it_and_when(make_pool):
    """A step of 0.2 s behind one of 0.1 s on the same worker begins when that one has ended."""
    with make_pool() as pool:
        open_all(pool, [probe_task(0), probe_task(1)])
        asked = time.monotonic()
        pool.step(0, "sleep 0.1")
        pool.step(1, "sleep 0.2")
        work = {}
        while len(work) < 2:
            work |= {event.episode: event.work for event in pool.receive(20.0)}
        heard = time.monotonic()
    assert work[0].worker == work[1].worker == 0
    assert asked <= work[0].began <= work[0].ended <= work[1].began <= work[1].ended <= heard
    assert work[0].ended - work[0].began >= 0.09 and work[1].ended - work[1].began >= 0.19


def test_release_drops_what_is_under_way(make_pool):
    with make_pool() as pool:
        open_all(pool, [probe_task(0), probe_task(1)])
        pool.step(0, "sleep 0.1")
        pool.release(0)
        pool.release(0)
        pool.reset(0, probe_task(5))  # the same number and seat, while the old step still runs
        pool.step(0, "play again")
        events = []
        while len(events) < 2:
            events += pool.receive(5.0)
        assert [(event.episode, event.kind) for event in events] == [(0, "observation"), (0, "step")]
        assert events[0].observation == "start 5" and events[1].step.observation.startswith("1: again")
        with pytest.raises(ValueError, match="episode 1 is open"):
            pool.reset(1, probe_task())
        with pytest.raises(ValueError, match="episode 7 is not open"):
            pool.step(7, "x")
        with pytest.raises(ValueError, match="would wait for ever"):
            pool.receive(None)


def test_workers_are_recycled_without_a_stall(make_pool, tmp_path):
    pids = []
    with make_pool(options={"closed_folder": str(tmp_path)}, recycle_after=3) as pool:
        pool.reset(0, probe_task())
        assert next_event(pool).kind == "observation"
        for episode in range(1, 9):  # at every moment an episode is open, so the worker is never empty by itself
            pool.reset(episode, probe_task())
            assert next_event(pool).kind == "observation"
            pids.append(ask(pool, episode, "pid"))
            pool.release(episode - 1)
            if episode == 4:  # the first worker has played its last; only one is on its way out at a time
                wait_until(lambda: pool.receive(0.01) == [] and len(pool._alive) == 1)
        # A worker's third release comes after its fourth episode was opened: 0 .. 3 play on the first, 4 .. 7 on the
        # second, 8 on the third.
        assert len(set(pids[:3])) == 1 and len(set(pids[3:7])) == 1 and pids[2] != pids[3] and pids[6] != pids[7]
        assert pool.receive(0.5) == []
        wait_until(lambda: not is_alive(int(pids[0])))
        assert (tmp_path / pids[0]).read_text() == "closed\n" * 2  # two were open at once, on two environments
        assert ask(pool, 8, "pid") == pids[7]
        assert len(pool._alive) == 1


def test_an_environment_that_never_starts_is_an_error_with_its_traceback(make_pool):
    with make_pool("probe_env:make_broken") as pool, within(20.0):
        pool.reset(0, probe_task())
        failure = next_event(pool).failure
        assert "turn 0: its worker's start failed:\nTraceback" in failure and "this environment never works" in failure
        with pytest.raises(EnvironmentFailure, match="failed to start 3 times in a row") as raised:
            pool.receive(None if pool._slots[0].busy else 20.0)
        assert "this environment never works" in str(raised.value)
        with pytest.raises(EnvironmentFailure):
            pool.reset(1, probe_task())
    with make_pool("no_such_module:make", workers=3) as pool, pytest.raises(EnvironmentFailure, match="no_such_module"):
        while True:
            pool.receive(20.0)


def test_closing_is_quick_and_final_even_if_a_worker_hangs(make_pool):
    pool = make_pool(workers=2)
    open_all(pool, [probe_task(0), probe_task(1)])
    pids = [int(ask(pool, episode, "pid")) for episode in (0, 1)]
    sleeper = int(ask(pool, 0, "sleeper"))
    pool.step(0, "sleep 600")
    assert pool.receive(0.05) == []
    with within(2.0):
        pool.close()
    pool.close()
    wait_until(lambda: not any(is_alive(pid) for pid in (*pids, sleeper)))
    for use in (lambda: pool.receive(0.0), lambda: pool.reset(0, probe_task()), lambda: pool.step(1, "pid")):
        with pytest.raises(ValueError, match="closed"):
            use()
    with within(1.0):
        make_pool().close()  # before its worker has started
