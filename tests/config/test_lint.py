"""Advice speaks where a pairing is known to go wrong, with the numbers, and is silent where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmtrl.config.lint import advice, parameter_estimate
from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import ModelSection

CONFIGS = Path(__file__).parents[2] / "configs"
# Nothing to say: a value loss that leaves the trunk alone, a limit that is an end, one epoch of SFT, several steps a
# batch.
SILENT = """
run: {name: a}
env: {factory: 'package.module:make'}
algorithm: {value_coef: 0.01, bootstrap_truncated: false}
sft: {epochs: 1}
"""


def size(vocabulary: int, **model: int | bool) -> list[str]:
    return [f"text.vocab_size={vocabulary}", *(f"model.{name}={str(value).lower()}" for name, value in model.items())]


# Qwen2.5's.
SIZE_1_5B = size(151936, layers=28, embed=1536, heads=12, kv_heads=2, head_dim=128, mlp=8960)
SIZE_7B = size(152064, layers=28, embed=3584, heads=28, kv_heads=4, head_dim=128, mlp=18944, tied_head=False)
GROUP = "algorithm.group_size=4"


def given(folder: Path, *overrides: str) -> list[str]:
    path = folder / "run.yaml"
    path.write_text(SILENT, encoding="utf-8")
    return advice(load_config(path, overrides))


def about(field: str, texts: list[str]) -> str:
    (text,) = [text for text in texts if text.startswith(field)]
    return text


def test_a_sound_config_and_the_quickstart_get_no_advice(tmp_path):
    assert given(tmp_path) == []
    assert advice(load_config(CONFIGS / "quickstart.yaml")) == []


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["algorithm.name=reinforce_plus_plus"], ["reinforce_plus_plus", ".88", ".18", "table 10", "ppo"]),
        (["env.options.reward_density=balanced"], [".29 (+.00)", ".41", ".58", "table 11", "dense or sparse"]),
        (["env.options.reward=binary"], [".042", ".22", "table 12", "ratio"]),
        (["env.options.reward=judge"], ["judge", ".072", ".093", ".22", "table 12"]),
        (
            ["reward.preset=hybrid_text", "reward.density=balanced"],
            ["reward.density: balanced", ".29 (+.00)", "table 11", "dense or sparse"],
        ),
        (["reward.preset=hybrid_code", "env.options.reward=ratio"], ["0.3 beside env 0.6", "twice", "verified_ratio"]),
        (["reward.preset=verified_binary"], ["reward.preset: verified_binary", ".042", "Set it to verified_ratio"]),
        (
            ["reward.parts={env: 1, judge: 0.1}", "judge.url=http://h/v1", "judge.model=m"],
            ["reward.parts.judge. What", ".072", ".22", "table 12"],
        ),
        (["algorithm.gamma=0.99"], ["0.99", "459 tokens", ".0066", ".66", "table 13", "discount_per to turn"]),
        (["algorithm.gamma=0"], ["from 1 tokens"]),
        (["algorithm.kl_coef=0.1"], ["0.1 throughout", ".90", ".43", "table 13", "0.01", "kl_coef_end"]),
        (["algorithm.minibatches=1"], ["every ratio is 1", "dual_clip"]),
        (
            ["algorithm.ratio=sequence"],
            ["algorithm.clip_low and algorithm.clip_high: 0.2 and 0.2", "0.0003 and 0.0004", "2507.18071"],
        ),
        (["lora.rank=8"], ["lora.rank: 8", "random", "lora.rank to 0"]),
        (
            ["algorithm.kl_coef=0.01", "algorithm.kl_reference=base", "sft.demonstrations=60"],
            ["kl_reference: base with 60 demonstrations", "appendix C", "before_rl"],
        ),
        (["algorithm.importance_cap=2"], ["importance_cap: 2", "rollout.overlap false", "bfloat16"]),
        (["algorithm.bootstrap_truncated=true"], ["gamma 1", "stalls", ".53 to 0", "false"]),
        (["algorithm.value_coef=0.5"], ["value_coef: 0.5", "0.01", "22 to 27 points"]),
    ],
)
def test_one_known_pairing_is_one_piece_of_advice_with_its_numbers(tmp_path, overrides, parts):
    (text,) = given(tmp_path, *overrides)
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    "overrides",
    [
        ["env.options.reward_density=dense"],
        ["env.options.reward=progress"],
        ["algorithm.gamma=0.5", "algorithm.discount_per=turn"],
        ["algorithm.gamma=0.5", "algorithm.discount_per=turn", "algorithm.bootstrap_truncated=true"],
        ["algorithm.kl_coef=0.1", "algorithm.kl_coef_end=0.2"],
        ["algorithm.kl_coef=0.1", "algorithm.kl_target=0.02"],
        ["algorithm.kl_coef=0.05"],
        ["algorithm.kl_coef=0.01", "algorithm.kl_reference=base", "sft.demonstrations=0"],
        ["algorithm.epochs=2", "algorithm.minibatches=1"],
        ["algorithm.ratio=sequence", "algorithm.clip_low=3e-4", "algorithm.clip_high=4e-4"],
        ["algorithm.importance_cap=2", "rollout.overlap=true"],
        ["algorithm.value_coef=0.5", "model.critic=separate"],
        ["sft.epochs=4"],  # a toy that starts from nothing
        ["algorithm.kl_coef=0.001"],  # the same
    ],
)
def test_the_cures_are_silent(tmp_path, overrides):
    assert given(tmp_path, *overrides) == []


def test_groups_are_normalised_once_and_by_enough_plays(tmp_path):
    texts = given(
        tmp_path,
        "algorithm.name=grpo",
        "algorithm.group_size=2",
        "algorithm.whiten_advantages=true",
        "algorithm.kl_coef=0.01",
    )
    assert "uniform groups get an advantage" in about("algorithm.whiten_advantages", texts)
    assert "4 plays a task" in about("algorithm.group_size: 2 with grpo", texts)
    assert "Set algorithm.kl_place to loss" in about("algorithm.kl_place: reward", texts)
    assert "sequence_token_mean" in about("algorithm.loss_mean: token", texts)
    assert len(texts) == 5  # and that PPO does better
    cured = ["algorithm.kl_place=loss", "algorithm.loss_mean=constant", "algorithm.kl_coef=0.01"]
    assert len(given(tmp_path, "algorithm.name=grpo", GROUP, *cured)) == 1
    # RLOO has the KL in its reward, undivided.
    assert len(given(tmp_path, "algorithm.name=rloo", GROUP, "algorithm.kl_coef=0.01")) == 1


def test_which_method_depends_on_the_size_of_the_model(tmp_path):
    def names(size: list[str], name: str) -> list[str]:
        texts = given(tmp_path, *size, f"algorithm.name={name}", GROUP, "algorithm.loss_mean=constant")
        return [text for text in texts if text.startswith("algorithm.name")]

    assert "at most 3B" in names(SIZE_1_5B, "rloo")[0]
    assert names(SIZE_7B, "rloo") == []
    assert "7B parameters or more" in names(SIZE_7B, "grpo")[0]
    assert "PPO .98 and .72" in names(SIZE_7B, "reinforce_plus_plus")[0]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("max_steps=41", True),
        ("max_steps=40", False),
        ("splits={train: {max_steps: 60}}", True),
        ("max_steps=true", False),
        ("max_steps=many", False),
    ],
)
def test_reinforce_plus_plus_is_not_for_more_than_forty_steps(tmp_path, option, said):
    texts = given(tmp_path, "algorithm.name=reinforce_plus_plus", f"env.options.{option}")
    assert any("steps. Without a critic" in text for text in texts) == said


def test_pretrained_models_get_one_epoch_and_a_kl_that_holds(tmp_path):
    texts = given(tmp_path, *SIZE_1_5B, "sft.epochs=3", "algorithm.kl_coef=0.001")
    assert "exactly one epoch" in about("sft.epochs: 3", texts)
    assert ".43 and .57" in about("algorithm.kl_coef: 0.001", texts)
    assert given(tmp_path, *SIZE_1_5B, "sft.demonstrations=0", "sft.epochs=3", "algorithm.kl_coef=0.01") == []


def test_the_notes_starter_recipe_is_recognised(tmp_path):
    """The verbatim presets draw advice for what their headers call faults; the corrected ones only a note."""
    verbatim = advice(load_config(CONFIGS / "guide" / "notes_7b_verbatim.yaml"))
    assert [text.split(":")[0] for text in verbatim] == ["algorithm.gamma", "algorithm.kl_coef"]
    corrected = advice(load_config(CONFIGS / "guide" / "notes_7b_corrected.yaml"))
    assert [text.split(":")[0] for text in corrected] == ["algorithm.epochs and algorithm.minibatches"]


def test_sizes_are_those_of_known_models(tmp_path):
    # Qwen2.5-1.5B has 1.54e9 parameters, Qwen2.5-7B 7.6e9, both with biases that this decoder has not.
    path = tmp_path / "run.yaml"
    path.write_text(SILENT, encoding="utf-8")
    assert parameter_estimate(load_config(path, SIZE_1_5B)) == pytest.approx(1.54e9, rel=0.01)
    assert parameter_estimate(load_config(path, SIZE_7B)) == pytest.approx(7.62e9, rel=0.01)


@pytest.mark.parametrize("tied", [True, False])
def test_the_estimate_counts_what_the_decoder_has(tmp_path, tied):
    import jax

    from jaxmtrl.models.decoder import Network, parameter_count

    section = ModelSection(layers=2, embed=64, heads=4, kv_heads=2, head_dim=16, mlp=96, tied_head=tied)
    shapes = jax.eval_shape(Network.from_section(section, 500, "float32").init, jax.random.key(0))["policy"]
    path = tmp_path / "run.yaml"
    path.write_text(SILENT, encoding="utf-8")
    sizes = {field: getattr(section, field) for field in ("layers", "embed", "heads", "kv_heads", "head_dim", "mlp")}
    config = load_config(path, size(500, tied_head=tied, **sizes))
    norms = (2 * 2 + 1) * 64  # two a block, one at the end
    assert parameter_count(shapes) == parameter_estimate(config) + norms


def test_advice_is_one_line_that_ends_with_the_cure(tmp_path):
    for text in given(tmp_path, "algorithm.gamma=0.9", "algorithm.kl_coef=1", "algorithm.value_coef=0.5"):
        assert "\n" not in text and text.endswith(".") and "Set " in text


@pytest.mark.parametrize("trained", ["env.train_split=b", "curriculum.core_split=b", "curriculum.mixture={a: 1, b: 1}"])
def test_a_run_that_evaluates_nothing_held_out_is_told_so(tmp_path, trained):
    found = given(tmp_path, trained, "evaluation.splits={b: 5}")
    assert any(text.startswith("evaluation.splits: b, and all of it is trained on") for text in found)
    other = given(tmp_path, trained, "evaluation.splits={b: 5, c: 5}")
    assert not any(text.startswith("evaluation.splits") for text in other)
