"""A config file is read whole or refused with every mistake named once, each with its place and its cure."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmtrl.config.catalogue import settings
from jaxmtrl.config.help import describe_config
from jaxmtrl.config.loading import config_to_dict, differing_fields, load_config, save_config
from jaxmtrl.config.yaml_format import YamlError, read_yaml, write_yaml
from jaxmtrl.errors import ConfigError

SMALLEST = "run: {name: a}\nenv: {factory: 'package.module:make'}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(write(folder, text), overrides)
    return caught.value.mistakes


def the_mistake(folder: Path, *overrides: str, text: str = SMALLEST) -> str:
    (message,) = mistakes(folder, text, *overrides)
    return message


def test_smallest_file_gives_the_defaults(tmp_path):
    config = load_config(write(tmp_path, SMALLEST))
    assert (config.run.name, config.run.seed, config.env.factory) == ("a", 0, "package.module:make")
    assert config.sampling.attention_buckets == (512, 1024)


def test_numbers_are_read_as_people_write_them(tmp_path):
    text = SMALLEST + "optimizer: {learning_rate: 1e-4, eps: 1.5E-8, weight_decay: 0, gradient_clip: 2}\n"
    optimizer = load_config(write(tmp_path, text)).optimizer
    assert (optimizer.learning_rate, optimizer.eps) == (1e-4, 1.5e-8)
    assert isinstance(optimizer.weight_decay, float) and isinstance(optimizer.gradient_clip, float)


def test_a_section_with_all_lines_commented_out_is_all_defaults(tmp_path):
    assert load_config(write(tmp_path, SMALLEST + "rl:\n  # iterations: 3\n")).rl.iterations == 50


def test_overrides_win_in_order_and_reach_into_options(tmp_path):
    text = SMALLEST + "rl: {iterations: 3}\n"
    overrides = ["rl.iterations=4", "rl.iterations=5", "env.options.train.rooms=[1, 2]", "env.options.hard=true"]
    config = load_config(
        write(tmp_path, text), [*overrides, "text.system_prompt='a=b'", "sampling.prefill_buckets=[8]"]
    )
    assert config.rl.iterations == 5
    assert config.env.options == {"train": {"rooms": [1, 2]}, "hard": True}
    assert config.text.system_prompt == "a=b"
    assert config.sampling.prefill_buckets == (8,)


def test_all_mistakes_are_reported_at_once(tmp_path):
    text = """
run: {name: a, sed: 1}
env: {factory: here}
modle: {}
optimizer: {learning_rate: -1}
model: {heads: 6, kv_heads: 4}
sampling: {slots: 1, slots: 2}
"""
    found = "\n".join(mistakes(tmp_path, text, "rl.iterations=few", "noequals", "algorithm.name=rloo"))
    for part in (
        "line 7: 'slots' is given twice, first on line 7",
        "override 'noequals': wanted section.field=value",
        "run.sed: unknown field; did you mean run.seed?",
        "modle: unknown section; did you mean model?",
        "env.factory: got 'here', wanted package.module:function",
        "optimizer.learning_rate: got -1, wanted number >= 0",
        'rl.iterations: got "few", wanted integer >= 0',
        "model.kv_heads: got 4, which does not divide model.heads (6); set model.kv_heads to 1, 2, 3, 6",
        "algorithm.group_size: got 1, wanted at least 2",
    ):
        assert part in found
    assert len(found.splitlines()) == 9


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.seed=true", "run.seed: got true, wanted integer >= 0"),
        ("run.seed='1'", 'run.seed: got "1", wanted integer'),
        ("run.seed=1.0", "run.seed: got 1.0, wanted integer"),
        ("run.seed=2147483648", "run.seed: got 2147483648, wanted integer >= 0 and < 2147483648"),
        ("run.seed=", "run.seed: got null, wanted integer"),
        ("run.name=../up", "run.name: got \"../up\", wanted text of letters, digits, '.', '_' and '-' that begins"),
        ("sampling.temperature=.nan", "sampling.temperature: got NaN, wanted number > 0"),
        ("sampling.temperature=0", "sampling.temperature: got 0, wanted number > 0"),
        ("log.tensorboard=1", "log.tensorboard: got 1, wanted true or false"),
        ("log.tensorboard=yes", 'log.tensorboard: got "yes", wanted true or false'),
        ("text.tokenizer=bqe", "byte-pair pieces trained on the training tasks' text); did you mean bpe?"),
        ("algorithm.name=grop", 'algorithm.name: got "grop", wanted ppo | rloo | grpo'),
        ("rollout.step_timeout_s=0", "rollout.step_timeout_s: got 0, wanted number > 0, in s"),
        (
            "sampling.prefill_buckets=[8, 0]",
            "sampling.prefill_buckets[1]: got 0, wanted list of integer >= 1, in tokens",
        ),
        ("evaluation.splits.held=0", "evaluation.splits.held: got 0, wanted mapping of name to integer >= 1"),
        ("rl.gamma=1", "rl.gamma: unknown field; did you mean algorithm.gamma?"),
        ("zzz.qqq=1", "zzz: unknown section; known are run, env, "),
        ("run.seed.deep=1", "run.seed: got {"),
        ("env.factory.x=1", "override env.factory.x: env.factory is not a mapping"),
        ("env.options.a=[1", "override env.options.a: got '[1'; line 1"),
        ("env.options.a={b: 1, b: 2}", "override env.options.a: line 1: 'b' is given twice"),
        (
            'text.system_prompt="\\ud800"',
            "text.system_prompt: line 1: a text holds a NUL character or half of a surrogate pair",
        ),
        ("env.options.a={1: 2}", "override env.options.a: line 1: got the key 1, wanted text"),
    ],
)
def test_one_wrong_override_is_one_message(tmp_path, override, message):
    assert message in the_mistake(tmp_path, override)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["env.factory=a.b"], ["env.factory: got 'a.b'"]),
        (["model.heads=4", "model.kv_heads=3"], ["model.kv_heads: got 3", "model.heads (4)", "1, 2, 4"]),
        (["model.head_dim=33"], ["model.head_dim: got 33", "even", "set 34"]),
        (["sampling.attention_buckets=[256, 512]"], ["got [256, 512]", "cache_length (1024)", "[256, 512, 1024]"]),
        (["sampling.attention_buckets=[1024, 1024]"], ["got [1024, 1024]", "set [1024]"]),
        (["sampling.attention_buckets=[]"], ["got []", "set [1024]"]),
        (["sampling.prefill_buckets=[64, 2048]"], ["got [64, 2048]", "sampling.cache_length (1024)", "[64, 1024]"]),
        (["sampling.prefill_buckets=[256, 64]"], ["got [256, 64]", "set [64, 256]"]),
        (
            ["sampling.max_action_tokens=1024", "batching.row_length=4096"],
            ["max_action_tokens: got 1024", "less than sampling.cache_length (1024)"],
        ),
        (["batching.row_length=48"], ["batching.row_length: got 48", "2 * sampling.max_action_tokens (48)"]),
        (["algorithm.name=rloo"], ["algorithm.group_size: got 1", "at least 2", "leave-one-out"]),
        (["algorithm.minibatches=9", "rl.tasks_per_iteration=4", "algorithm.group_size=2"], ["got 9", "8 episodes"]),
        (["rollout.ray_cpus=1.5"], ["rollout.ray_cpus: got 1.5", "set 2"]),
        (["rollout.ray_address=auto"], ["rollout.ray_address: got 'auto'", "rollout.backend multiprocess", "to ray"]),
        (["rollout.overlap=true"], ["algorithm.importance_cap: got 0", "rollout.overlap"]),
        (["algorithm.dual_clip=0.5"], ["algorithm.dual_clip: got 0.5", "above 1"]),
        (
            ["algorithm.name=rloo", "algorithm.group_size=2", "algorithm.discount_per=turn", "algorithm.gamma=0.5"],
            ["algorithm.gamma: got 0.5 with discount_per turn", "rloo"],
        ),
        (["pretrain.plays=4"], ["pretrain.batch_episodes: got 8", "pretrain.plays (4)"]),
        (
            ["lora.frozen=int8", "lora.dropout=0.1"],
            ["lora.dropout: got 0.1 with lora.rank 0", "remove lora.dropout, lora.frozen"],
        ),
        (["text.vocab_size=299"], ["text.vocab_size: got 299", "wanted >= 300", "bpe"]),
        (["lora.rank=8", "pretrain.plays=8"], ["pretrain.plays: got 8 with lora.rank 8", "nothing"]),
        (["lora.rank=8", "lora.targets=[query, head]"], ['lora.targets[1]: got "head"', "query, key, value"]),
        (["sft.batch_episodes=65"], ["sft.batch_episodes: got 65", "sft.demonstrations (64)"]),
        (
            ["sft.demonstrations=2", "sft.batch_episodes=1", "sft.validation_share=0.9"],
            ["validation_share: got 0.9", "(2)"],
        ),
    ],
)
def test_rules_between_fields_name_both_and_the_cure(tmp_path, overrides, parts):
    message = the_mistake(tmp_path, *overrides)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.name=rloo", "algorithm.group_size=2"],
        ["algorithm.minibatches=64"],
        ["sft.demonstrations=0", "sft.batch_episodes=99"],
        ["sft.demonstrations=1", "sft.batch_episodes=1"],  # a tenth of one rounds to none kept back
        ["batching.row_length=49", "sampling.max_action_tokens=24"],
        ["rollout.ray_address=auto", "rollout.backend=ray", "rollout.ray_cpus=2"],
        ["rollout.overlap=true", "algorithm.importance_cap=1"],
        ["algorithm.dual_clip=3"],
        ["algorithm.kl_place=loss", "algorithm.kl_coef=0"],
    ],
)
def test_values_on_the_right_side_of_each_rule_pass(tmp_path, overrides):
    load_config(write(tmp_path, SMALLEST), overrides)


def test_a_rule_is_silent_about_a_field_that_is_wrong_already(tmp_path):
    assert "model.kv_heads: got 0, wanted integer >= 1" in the_mistake(tmp_path, "model.kv_heads=0", "model.heads=7")


def test_a_missing_section_and_a_section_that_is_no_mapping(tmp_path):
    found = mistakes(tmp_path, "run: 3\n")
    assert any(message.startswith("run: got 3, wanted a mapping with fields such as name") for message in found)
    assert any(message.startswith("env: missing, wanted a section") for message in found)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "got an empty file, wanted a mapping of sections (run, env,"),
        ("- a\n", 'got ["a"], wanted a mapping'),
        ("run: {name: a\nenv: {}\n", "line 2"),
        ("run:\n\tname: a\n", "line 2, column 1: not YAML"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("run: &x {name: a}\nenv: *x\n", "line 1: anchors"),
        ("run: {name: !!binary aGk=}\n", "line 1: got the tag"),
        ("run: !!python/object:os.system {}\n", "line 1: got the tag"),
        ("run: \x00\n", "not YAML"),
    ],
)
def test_files_that_are_not_a_config_get_one_clear_error(tmp_path, text, part):
    (message,) = mistakes(tmp_path, text)
    assert part in message


@pytest.mark.parametrize("key", ["null", "true", "1.5", "[a]"])
def test_a_key_that_is_no_text_is_one_mistake(tmp_path, key):
    with pytest.raises(ConfigError, match="wanted text; put it in quotes") as caught:
        load_config(write(tmp_path, f"{SMALLEST}mesh: {{{key}: 3}}\n"))
    assert len(caught.value.mistakes) == 1


def test_a_missing_file_names_its_neighbour(tmp_path):
    write(tmp_path, SMALLEST)
    with pytest.raises(ConfigError, match=r"file not found; did you mean .*run\.yaml\?"):
        load_config(tmp_path / "runn.yaml")
    with pytest.raises(ConfigError, match="cannot be read as a text file"):
        load_config(tmp_path)


def test_saved_config_is_the_same_config(tmp_path):
    overrides = [
        "optimizer.eps=1e-8",
        "env.options.when='2024-01-01'",
        "env.options.text='1e-4'",
        "env.options.no='no'",
    ]
    config = load_config(write(tmp_path, SMALLEST), [*overrides, "text.system_prompt='é: {x}\n#'"])
    save_config(config, tmp_path / "folder" / "config.yaml")
    again = load_config(tmp_path / "folder" / "config.yaml")
    assert again == config
    assert again.env.options == {"when": "2024-01-01", "text": "1e-4", "no": "no"}
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["config.yaml"]


TEXT = st.characters(codec="utf-8", exclude_characters="\0")
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1-e._ :#", max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_written_yaml_reads_back_unchanged(value):
    assert read_yaml(write_yaml(value)) == (value, [])


@pytest.mark.parametrize("text", ["010", "1:30", "no", "on", "2024-01-01", "0x1f", "1e", "e5", "."])
def test_what_yaml_1_1_would_turn_into_something_else_stays_text(text):
    assert read_yaml(text) == (text, [])


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_in_words(text):
    try:
        read_yaml(text)
    except YamlError as err:
        assert str(err)


def test_differing_fields_name_both_values(tmp_path):
    saved = config_to_dict(load_config(write(tmp_path, SMALLEST), ["env.options.a=1", "optimizer.learning_rate=0.001"]))
    given_overrides = ["env.options.b.c=2", "optimizer.learning_rate=0.002", "sampling.prefill_buckets=[64]"]
    given_now = config_to_dict(load_config(write(tmp_path, SMALLEST), given_overrides))
    assert differing_fields(saved, given_now) == [
        "env.options.a: 1 in the run folder, nothing given",
        "sampling.prefill_buckets: [64, 256] in the run folder, [64] given",
        "optimizer.learning_rate: 0.001 in the run folder, 0.002 given",
        "env.options.b.c: absent in the run folder, 2 given",
    ]
    assert differing_fields(saved, saved) == []
    assert differing_fields({"a": {"b": 1, "c": True}}, {"a": {"b": 1.0, "c": 1}}) == [
        "a.c: true in the run folder, 1 given"
    ]


def test_help_lists_every_field_with_default_bound_unit_and_sentence(tmp_path):
    page = describe_config()
    config = load_config(write(tmp_path, SMALLEST))
    for section in dataclasses.fields(config):
        for field in dataclasses.fields(getattr(config, section.name)):
            path = f"{section.name}.{field.name}"
            assert f"  {path} " in page
            assert settings()[path].about
    assert "  rollout.step_timeout_s = 20.0   (number > 0, in s)\n      deadline of one environment step\n" in page
    assert "  env.factory (required)   (text)" in page
