"""What belongs to which method: a field that a method would not read is refused, with both fields and the cure."""

from __future__ import annotations

import pytest

from jaxmtrl.config.algorithm_rules import ALGORITHM_RULES
from jaxmtrl.config.catalogue import settings
from jaxmtrl.config.loading import load_config
from jaxmtrl.config.rules import RULES
from jaxmtrl.errors import ConfigError

SMALLEST = "run: {name: a}\nenv: {factory: 'package.module:make'}\n"
GROUP = "algorithm.group_size=4"
GOES_TOGETHER = [
    ["name=rloo", "group_size=2"],
    ["name=grpo", "group_size=2", "drop_uniform_groups=true"],
    ["name=gspo", GROUP, "ratio=sequence"],
    ["name=gigpo", GROUP, "gamma=0.95", "discount_per=turn"],
    ["name=gigpo", GROUP],
    ["name=reinforce_plus_plus", "gamma=0.9"],
    ["name=reinforce_plus_plus", "gamma=0.9", "discount_per=turn"],
    ["name=reinforce_plus_plus", "group_baseline=true", "group_size=2"],
    ["credit=turn"],
    ["credit=turn", "gamma=0.9", "discount_per=turn"],
    ["credit=bilevel", "gamma=0.9", "discount_per=turn", "gamma_token=0.99"],
    ["lam=0.95", "lam_critic=1", "lam_adaptive=0.05"],
    ["kl_coef=0.01", "kl_coef_end=0"],
    ["kl_coef=0.01", "kl_target=0.02"],
    ["importance_cap=1"],
    ["importance_cap=2", "importance_beyond=mask", "importance_floor=0.5"],
    ["overlong=penalty", "overlong_from=1023"],
    ["overlong=filter", "overlong_from=9999"],
    ["dual_clip=1.5"],
    ["model.critic=separate"],
    ["optimizer.decay=steps", "optimizer.decay_factor=0.5", "optimizer.decay_every=4"],
]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "run.yaml").write_text(SMALLEST, encoding="utf-8")
    return tmp_path / "run.yaml"


def load(path, overrides):
    """Names without a section are the algorithm's."""
    return load_config(path, [text if "." in text.split("=")[0] else f"algorithm.{text}" for text in overrides])


def mistakes(path, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            ["name=rloo"],
            ["algorithm.group_size: got 1", "at least 2", "leave-one-out", "group_size to 4"],
        ),
        (["name=grpo"], ["algorithm.group_size: got 1", "grpo", "mean and deviation"]),
        (["name=gspo", "ratio=sequence"], ["algorithm.group_size: got 1", "gspo", "mean and deviation"]),
        (["name=gigpo"], ["algorithm.group_size: got 1", "gigpo", "mean and deviation"]),
        (["name=reinforce_plus_plus", "group_baseline=true"], ["algorithm.group_size: got 1", "group_baseline true"]),
        (["group_baseline=true", GROUP], ["algorithm.group_baseline: got true with algorithm.name ppo"]),
        (["drop_uniform_groups=true"], ["drop_uniform_groups: got true with algorithm.group_size 1", "always uniform"]),
        (["name=gspo", GROUP], ["algorithm.ratio: got token", "wanted sequence", "algorithm.name to grpo"]),
        (["name=grpo", GROUP, "gamma=0.9"], ["algorithm.gamma: got 0.9 with discount_per token", "grpo"]),
        (["name=gspo", GROUP, "ratio=sequence", "gamma=0.9"], ["algorithm.gamma: got 0.9", "gspo"]),
        (["name=rloo", GROUP, "discount_per=turn"], ["algorithm.gamma: got 1 with discount_per turn", "rloo"]),
        (
            ["name=reinforce_plus_plus", GROUP, "group_baseline=true", "gamma=0.9"],
            ["algorithm.gamma: got 0.9", "group_baseline true"],
        ),
        (["name=gigpo", GROUP, "gamma=0.95"], ["algorithm.discount_per: got token with gamma 0.95", "gigpo"]),
        (["name=rloo", GROUP, "credit=turn"], ["algorithm.credit: got turn", "rloo", "only ppo"]),
        (["name=reinforce_plus_plus", "credit=bilevel"], ["algorithm.credit: got bilevel", "reinforce_plus_plus"]),
        (["credit=turn", "gamma=0.9"], ["algorithm.discount_per: got token with gamma 0.9", "algorithm.credit turn"]),
        (["credit=bilevel", "gamma=0.9"], ["algorithm.discount_per: got token", "algorithm.credit bilevel"]),
        (["gamma_token=0.9"], ["algorithm.gamma_token: got 0.9 with algorithm.credit token", "bilevel"]),
        (["lam_critic=1", "credit=turn"], ["algorithm.lam_critic: got 1", "algorithm.credit turn", "wanted null"]),
        (["lam_critic=0", "name=rloo", GROUP], ["algorithm.lam_critic: got 0", "algorithm.name rloo"]),
        (["lam_adaptive=0.05", "credit=turn"], ["algorithm.lam_adaptive: got 0.05", "algorithm.credit turn"]),
        (["lam_adaptive=0.05", "name=grpo", GROUP], ["algorithm.lam_adaptive: got 0.05", "algorithm.name grpo"]),
        (["kl_coef=0.01", "kl_coef_end=0.1", "kl_target=0.02"], ["kl_target: got 0.02", "kl_coef_end 0.1", "one of"]),
        (["kl_coef_end=0.1"], ["algorithm.kl_coef: got 0 with algorithm.kl_coef_end 0.1"]),
        (["kl_coef_end=0.0"], ["algorithm.kl_coef: got 0 with algorithm.kl_coef_end 0"]),
        (["kl_target=0.02"], ["algorithm.kl_coef: got 0 with algorithm.kl_target 0.02"]),
        (
            ["optimizer.decay_factor=0.5", "optimizer.decay_every=4"],
            ["optimizer.decay_factor: got 0.5", "optimizer.decay constant", "remove optimizer.decay_factor, "],
        ),
        (["importance_cap=0.5"], ["algorithm.importance_cap: got 0.5", "at least 1"]),
        (["rollout.overlap=true", "importance_cap=0.5"], ["algorithm.importance_cap: got 0.5", "rollout.overlap"]),
        (
            ["importance_floor=0.5", "importance_cap=2"],
            ["importance_floor: got 0.5", "algorithm.importance_beyond truncate", "wanted mask"],
        ),
        (["importance_floor=0.5", "importance_beyond=mask"], ["importance_floor: got 0.5", "importance_cap 0"]),
        (
            ["overlong=penalty", "overlong_from=1024"],
            ["algorithm.overlong_from: got 1024", "batching.row_length (1024)", "set 768"],
        ),
        (["dual_clip=1"], ["algorithm.dual_clip: got 1", "above 1"]),
        (["model.critic=separate", "name=rloo", GROUP], ["model.critic: got separate", "algorithm.name rloo"]),
    ],
)
def test_what_does_not_go_together_is_one_message_that_names_it(path, overrides, parts):
    (message,) = mistakes(path, *overrides)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("overrides", GOES_TOGETHER)
def test_what_goes_together_passes(path, overrides):
    load(path, overrides)


def test_rules_name_fields_that_exist():
    for rule in (*RULES, *ALGORITHM_RULES):
        assert set(rule.fields) <= set(settings()), rule.check.__name__


def test_rules_read_no_field_that_they_do_not_name(path):
    """Otherwise a rule would speak of a field that is already reported as wrong, with a value nobody gave."""
    configs = [load(path, overrides) for overrides in GOES_TOGETHER]
    for rule in (*RULES, *ALGORITHM_RULES):
        read: set[str] = set()
        for config in configs:
            rule.check(_Spy(config, "", read))  # pyright: ignore[reportArgumentType]
        assert read <= set(rule.fields), rule.check.__name__


class _Spy:
    """A config that notes which dotted fields are asked of it."""

    def __init__(self, inner, path: str, read: set[str]):
        self.__dict__.update(_inner=inner, _path=path, _read=read)

    def __getattr__(self, name: str):
        value, path = getattr(self._inner, name), f"{self._path}{name}"
        if self._path:
            self._read.add(path)
            return value
        return _Spy(value, f"{path}.", self._read)
