"""Rows in a file, a config, and a pool of processes: software tasks as a run plays them."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import pytest
from sandboxes import needs_bubblewrap
from swe_plays import play
from tiny_package import CODE, faulty, write_archive

from jaxmtrl.assembly import check
from jaxmtrl.config.loading import load_config
from jaxmtrl.envs.base import load_environment
from jaxmtrl.envs.help import describe_environments
from jaxmtrl.envs.swe import make
from jaxmtrl.envs.swe.actions import write_command, write_submit
from jaxmtrl.envs.swe.loading import save_instances
from jaxmtrl.envs.swe.patches import make_patch, reverse_patch
from jaxmtrl.errors import ConfigError, JaxmtrlError
from jaxmtrl.rewards.order import order_mistakes
from jaxmtrl.rewards.recipe import Recipe
from jaxmtrl.rewards.scored import ScoredEnvironment
from jaxmtrl.rollout.demonstrate import demonstrate
from jaxmtrl.rollout.pool import MultiprocessPool

pytest_plugins = ["swe_fixtures"]
TOTAL = ("        result = result + value", "        result = result - value")
SUBMIT = write_submit("fenced")


def in_a_sandbox(test):
    for mark in needs_bubblewrap():
        test = mark(test)
    return test


@pytest.fixture(scope="session")
def options(tmp_path_factory, venv) -> dict:
    """Two faults of a package whose archive is in the cache already."""
    folder = tmp_path_factory.mktemp("rows")
    archive = write_archive(folder / "cache" / "archives")
    bug = make_patch({"tiny/core.py": CODE}, {"tiny/core.py": CODE.replace(*TOTAL)})
    tests = ("tests/test_core.py::test_total", "tests/test_other.py::test_sum")
    clamp = ("tests/test_core.py::test_clamp[5-5]",)
    other = faulty(
        archive, id="tiny-pkg-1.0__arith-2", bug_patch=bug, patch=reverse_patch(bug), extra={"kind": "arith"}
    )
    rows = [
        faulty(archive, extra={"kind": "stub"}),
        dataclasses.replace(other, fail_to_pass=tests, pass_to_pass=clamp),
    ]
    save_instances(folder / "rows.jsonl", rows)
    shutil.copytree(venv, folder / "venvs" / "pypi__tiny-pkg", symlinks=True)
    return {
        "rows": [str(folder / "rows.jsonl")],
        "cache": str(folder / "cache"),
        "venvs": str(folder / "venvs"),
        "quarantine": "",
        "max_steps": 6,
        "splits": {"train": {"kinds": ["stub"]}, "heldout": {"kinds": ["arith"], "max_steps": 4}},
    }


def mistakes(options: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        made = make(options)
        for name in made.split_names():
            made.split(name)
    return "\n".join(caught.value.mistakes)


def test_splits_are_those_of_the_options(options):
    environment = make(options)
    (train,), (heldout,) = (environment.split(name).tasks for name in environment.split_names())
    assert (train.id, train.payload) == ("tiny-pkg-1.0__stub-1", {"kind": "pypi/tiny-pkg", "max_steps": 6})
    assert (heldout.id, heldout.payload["max_steps"], environment.max_steps) == ("tiny-pkg-1.0__arith-2", 4, 6)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"rows": []}, "splits.train has no rows"),
        ({"rows": ["no/such.jsonl"]}, "no such file"),
        ({"backend": "local"}, "env.options.unsafe to true"),
        ({"reward": "ratio"}, "env.options.reward"),
        ({"splits": {"train": {"kinds": ["cmp"]}}}, "none of 2 rows passes"),
        ({"splits": {"train": {"count": 3}}}, "asks for 3 tasks, and 2"),
        ({"splits": {"train": {"share": [0.5, 0.5]}}}, "low < high"),
        ({"splits": {"train": {}, "heldout": {"kinds": ["arith"]}}}, "share 1 tasks, such as tiny-pkg-1.0__arith-2"),
        ({"splits": {"train": {"repos": ["pares"]}}}, "'pares'"),
        ({"max_step": 3}, "did you mean max_steps"),
        ({"limits": {"process": 9}}, "env.options.limits.process: unknown option; did you mean processes"),
        ({"observation": {"head": 1}}, "env.options.observation.head: got 1, wanted integer >= 100"),
        ({"limits": 3}, "env.options.limits: got 3, wanted fields"),
    ],
)
def test_mistakes_are_told_with_their_place(options, changed, told):
    assert told in mistakes(options | changed)


def test_help_describes_the_options():
    page = describe_environments()
    assert "env.options.splits.NAME.share" in page and "env.options.limits.processes = 128" in page


@in_a_sandbox
def test_gold_is_worth_1_and_nothing_and_junk_are_worth_0_on_every_instance(options):
    environment = make(options)
    junk = write_command("echo '# fixed' >> tiny/core.py", "fenced")
    for task in (task for name in environment.split_names() for task in environment.split(name).tasks):
        env = environment.make_env()
        try:
            worth = [play(env, task, actions)[1][-1] for actions in ([SUBMIT], [junk, SUBMIT])]
            gold = play(env, task, environment.expert_actions(task))[1][-1]
        finally:
            env.close()
        assert [result.reward for result in (*worth, gold)] == [0.0, 0.0, 1.0]
        assert [result.success for result in (*worth, gold)] == [False, False, True]


@in_a_sandbox
def test_the_doctor_hears_of_the_sandbox(options):
    probes = make(options).probes()
    assert len(probes) > 5 and all(probe.name for probe in probes)


@in_a_sandbox
def test_visible_tests_are_there_and_hidden_ones_are_not(options):
    for tests, there in (("hidden", False), ("visible", True)):
        environment = make(options | {"tests": tests})
        env = environment.make_env()
        env.reset(environment.split("train").tasks[0])
        seen = env.step(write_command("ls tests; git status --short; git log --oneline", "fenced")).observation
        env.close()
        assert ("test_core.py" in seen) == there and seen.count(" base\n") == 1


@in_a_sandbox
def test_demonstrations_are_won_in_a_pool_of_processes(options):
    factory = "jaxmtrl.envs.swe:make"
    environment = load_environment(factory, options)
    tasks = [*environment.split("train").tasks, *environment.split("heldout").tasks]
    reports = []
    environment.prepare(tasks, lambda done, total: reports.append((done, total)))
    assert reports[-1] == (2, 2)
    pool = MultiprocessPool(
        factory, options, workers=1, step_timeout_s=60.0, reset_timeout_s=60.0, recycle_after=0, name_states=False
    )
    try:
        plays = demonstrate(environment, pool, tasks)
    finally:
        pool.close()
    assert [play[-1].reward for play in plays] == [1.0, 1.0]
    assert all("edited tiny/core.py" in play[-1].observation for play in plays)


MIXED = Recipe(
    weights={"env": 0.6, "pass_ratio": 0.3, "style": 0.1},
    penalties={},
    clip=1.0,
    gamma=1.0,
    keeps_truncated=False,
    stages=0,
    format_pattern="",
)


@in_a_sandbox
def test_mixed_rewards_pay_nothing_for_nothing(options):
    """hybrid_code: .6 env + .3 pass_ratio + .1 style; a comment's clean style is not paid, and gold is worth most."""
    environment = ScoredEnvironment(make(options | {"reward": "binary"}), MIXED, None)
    task = environment.split("train").tasks[0]
    env = environment.make_env()
    junk = write_command("echo '# fixed' >> tiny/core.py", "fenced")
    try:
        nothing, comment = (play(env, task, actions)[1][-1] for actions in ([SUBMIT], [junk, SUBMIT]))
        gold = play(env, task, environment.expert_actions(task))[1][-1]
    finally:
        env.close()
    assert nothing.reward == comment.reward == 0.0
    assert 0.9 < gold.reward <= 1.0 and gold.reward == pytest.approx(0.9 + 0.1 * gold.metrics["reward/style"])


def test_losing_can_never_pay_like_winning(options):
    """A judge or a style on top is bounded by what a solved task is sure of."""
    for reward, weights, fine in (
        ("binary", {"env": 0.6, "pass_ratio": 0.3, "style": 0.1}, True),
        ("binary", {"env": 0.6, "judge": 0.4}, True),
        ("f2p_gated", {"env": 0.6, "judge": 0.4}, False),  # half of two tests and a kind judge: .7 > .6
        ("study_ratio", {"env": 1.0}, True),
    ):
        environment = make(options | {"reward": reward})
        own = environment.own_returns(environment.split("train").tasks)
        recipe = dataclasses.replace(MIXED, weights=weights)
        assert (order_mistakes(recipe, own, environment.max_steps) == []) == fine, (reward, weights)


@in_a_sandbox
def test_the_share_of_the_study_warns_of_what_it_pays_for_nothing(options):
    environment = make(options | {"reward": "study_ratio"})
    with pytest.warns(UserWarning, match=r"pays 0\.500 \(median"):
        environment.prepare(environment.split("train").tasks, lambda done, total: None)


@in_a_sandbox
def test_a_hint_names_the_place_when_asked_and_the_expert_follows_it(options):
    """`total` stands in a few lines; without the option nothing is told of where the repair is."""
    task = make(options).split("heldout").tasks[0]
    plain = make(options).make_env()
    assert "Look at lines" not in plain.reset(task)
    plain.close()
    environment = make({**options, "hint": "place"})
    env = environment.make_env()
    seen = env.reset(task)
    (told,) = re.findall(r"^Look at lines (\d+) to (\d+) of tiny/core\.py\.$", seen, re.MULTILINE)
    actions = environment.expert_actions(task) or ()
    assert f"sed -n '{told[0]},{told[1]}p' tiny/core.py" in actions[0]
    results = [env.step(action) for action in actions]
    assert TOTAL[1] in results[0].observation and results[-1].success
    env.close()


def test_a_config_that_would_kill_workers_at_work_is_refused(options, tmp_path):
    """60 s for a command, 300 for the tests, 15 for what is around them."""
    text = f"run: {{name: a}}\nenv: {{factory: 'jaxmtrl.envs.swe:make', options: {json.dumps(options)}}}\n"
    (tmp_path / "run.yaml").write_text(text + "evaluation: {splits: {heldout: 1}}\nsft: {demonstrations: 0}\n")
    with pytest.raises(ConfigError, match=r"got 375, and a step of this environment may take 375 s .* set it to 562"):
        check(load_config(tmp_path / "run.yaml", ["rollout.step_timeout_s=375"]))
    check(load_config(tmp_path / "run.yaml", ["rollout.step_timeout_s=376", "reward.preset=verified_binary"]))


def test_instances_are_read_again_by_workers_in_other_folders(options, tmp_path, monkeypatch):
    environment = make(options)
    monkeypatch.chdir(tmp_path)
    assert environment.split("train").tasks


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rows": [""]}, r"rows\[0\]: got \"\""),
        ({"cache_gib": 1e300}, "cache_gib: got"),
        ({"command_s": float("inf")}, "command_s: got Infinity"),
        ({"limits": {"processes": 4}}, "processes: got 4, wanted integer >= 16"),
        ({"limits": {"file_size_mib": 10**30}}, "file_size_mib: got 1000"),
    ],
)
def test_numbers_that_no_machine_takes_are_refused(options, changed, words):
    with pytest.raises(ConfigError, match=words):
        make({**options, **changed})


def test_the_mistakes_of_all_files_and_of_all_splits_come_at_once(options, tmp_path):
    (tmp_path / "bad.jsonl").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        make({**options, "rows": ["/none/a.jsonl", str(tmp_path / "bad.jsonl")]}).split("train")
    told = "\n".join(caught.value.mistakes)
    assert "/none/a.jsonl: there is no such file" in told and "bad.jsonl: bad.jsonl line 1: repo is missing" in told
    with pytest.raises(ConfigError) as caught:
        make({**options, "splits": {"train": {"repos": ["x"]}, "heldout": {"kinds": ["y"]}}}).split("train")
    told = "\n".join(caught.value.mistakes)
    assert "splits.train: 'x' is none of" in told and "splits.heldout: 'y': no such kind" in told


@in_a_sandbox
def test_what_would_fail_every_episode_is_told_while_preparing(options, tmp_path):
    (tmp_path / "file").write_text("x")
    wrong = {**options, "splits": {"train": {}}}
    for changed, words in (
        ({"quarantine": str(tmp_path / "file")}, "env.options.quarantine .*file: File exists"),
        ({"command_s": 1e-9}, "`ls | cat` ended with timeout: .*give more by env.options"),
        ({"cache": str(tmp_path / "file")}, "env.options.cache"),
    ):
        environment = make({**wrong, **changed})
        with pytest.raises(JaxmtrlError, match=words):
            environment.prepare(environment.split("train").tasks[:1], lambda done, total: None)
