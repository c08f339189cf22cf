"""A study file's mistakes come all at once, each with its place and the nearest right name."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmtrl.errors import ConfigError
from jaxmtrl.studies.reading import read_configs, read_study

HERE = Path(__file__).parent
TINY = HERE.parent / "training" / "tiny.yaml"
HEAD = f"""
name: small
about: Nothing.
base: {TINY}
set: {{env.options: {{train_tasks: 8, heldout_tasks: 100}}, evaluation.splits: {{heldout: 100}}}}
minutes_per_run: 1
smoke: {{cells: [a]}}
"""


def mistakes_of(text: str, tmp_path: Path) -> list[str]:
    """What reading the file, or else its cells, complains of."""
    path = tmp_path / "small.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        study, base = read_study(path)
        read_configs(study, base, tmp_path)
    return list(caught.value.mistakes)


def has(mistakes: list[str], *parts: str) -> bool:
    return any(all(part in mistake for part in parts) for mistake in mistakes)


def test_wrong_fields_are_listed_together_with_the_nearest_name(tmp_path):
    text = HEAD + "cels: {a: {}}\nseeds: [0, 1]\nclaims: [{says: x, higer: a, lower: b}]\ncells: {a: {policy: rk}}\n"
    found = mistakes_of(text, tmp_path)
    assert has(found, "cels: unknown field; did you mean cells?")
    assert has(found, "seeds: got [0, 1]", "at least 3")
    assert has(found, "claims[0].higer: unknown field; did you mean higher?")
    assert has(found, "claims[0].higher: missing")
    assert has(found, "cells.a.policy", "rk", "pretrain | sft | rl")


def test_a_name_that_could_be_no_folder_is_refused(tmp_path):
    assert has(mistakes_of(HEAD + 'cells: {a: {}, "b/c": {}}\n', tmp_path), "b/c", "of letters, digits")


def test_rules_between_fields_are_listed_together(tmp_path):
    text = HEAD.replace("cells: [a]", "cells: [aa]") + (
        "cells: {ab: {after: ac}, ac: {}}\naxes: {x: {y: {}}}\nseeds: [1, 2, 1]\nsources: [T2]\n"
        "published: {ab/heldout/rl: T1/w2-o3-q4/PP0}\n"
    )
    found = mistakes_of(text, tmp_path)
    assert has(found, "cells and axes: got both")
    assert has(found, "seeds: [1, 2, 1] names one twice")
    assert has(found, "smoke.cells[0]: 'aa' is no cell")
    assert has(found, "sources[0]: 'T2' is no table; known are T1, T3")
    assert has(found, "published.ab/heldout/rl: there is no number 'T1/w2-o3-q4/PP0'")


def test_a_cell_cannot_begin_with_one_that_comes_later(tmp_path):
    found = mistakes_of(HEAD + "cells: {a: {after: b}, b: {}}\n", tmp_path)
    assert found == ["cells.a.after: 'b' comes later; put it first"]


def test_a_claim_that_the_published_numbers_contradict_is_a_slip(tmp_path):
    # T1 has .88 for w2-o3-q4 and .68 for w8-o3-q4.
    text = HEAD + (
        "cells: {a: {}, b: {set: {rl.iterations: 1}}}\n"
        "published: {a/heldout/rl: T1/w2-o3-q4/PPO, b/heldout/rl: T1/w8-o3-q4/PPO}\n"
        "claims: [{says: x, higher: b/heldout/rl, lower: a/heldout/rl}]\n"
    )
    assert has(mistakes_of(text, tmp_path), "claims[0]: the source has 0.68 for b/heldout/rl", "swap higher and lower")
    path = tmp_path / "small.yaml"
    path.write_text(text.replace("lower: a/heldout/rl}", "lower: a/heldout/rl, by: notes}"))
    assert read_study(path)[0].claims[0].by == "notes"  # others may claim what they like


def test_mistakes_of_configs_name_the_cells_that_have_them(tmp_path):
    text = HEAD + (
        "cells:\n"
        "  a: {set: {rl.iteration: 3}}\n"
        "  b: {set: {env.options.train_task: 3, algorithm.gamma: 1.5}}\n"
        "  c: {set: {evaluation.splits: {heldot: 100}}}\n"
        "  d: {set: {evaluation.splits: {}}}\n"
    )
    found = mistakes_of(text, tmp_path)
    assert has(found, "a: rl.iteration: unknown field; did you mean rl.iterations?")
    assert has(found, "b: algorithm.gamma: got 1.5")
    assert has(found, "c: evaluation.splits.heldot: no split 'heldot'")
    assert has(found, "d: evaluation.splits: names none")


def test_options_that_the_environment_refuses_name_their_cell(tmp_path):
    text = HEAD + "cells: {a: {}, b: {set: {env.options.train_task: 3}}}\n"
    assert has(mistakes_of(text, tmp_path), "b: env.options.train_task: unknown option; did you mean train_tasks?")


def test_a_mistake_of_the_base_is_said_once(tmp_path):
    text = HEAD.replace("set: {", "set: {rl.iteration: 3, ") + "cells: {a: {}, b: {set: {rl.iterations: 1}}}\n"
    assert mistakes_of(text, tmp_path) == ["every cell: rl.iteration: unknown field; did you mean rl.iterations?"]


def test_figures_that_no_run_will_make_are_refused(tmp_path):
    text = HEAD + (
        "cells: {a: {}, b: {set: {rl.iterations: 1}}}\n"
        "published: {a/heldout/rk: T1/w2-o3-q4/PPO}\n"
        "claims: [{says: x, higher: a/heldout/rl, lower: c/heldout/rl}]\n"
    )
    found = mistakes_of(text, tmp_path)
    assert has(found, "published.a/heldout/rk: 'a/heldout/rk' is no cell/split/policy of this study; did you mean")
    assert has(found, "claims[0].lower: 'c/heldout/rl'")


def test_a_claim_about_a_cell_that_is_not_shown_is_refused(tmp_path):
    text = HEAD + (
        "cells: {a: {}, b: {shown: false}}\nclaims: [{says: x, higher: a/heldout/rl, lower: b/heldout/rl}]\n"
    )
    assert has(mistakes_of(text, tmp_path), "claims[0].lower: 'b/heldout/rl' is no cell/split/policy of this study")


def test_a_file_that_is_not_there_has_a_neighbour(tmp_path):
    (tmp_path / "complexity.yaml").write_text("")
    with pytest.raises(ConfigError, match="did you mean .*complexity.yaml"):
        read_study(tmp_path / "complxity.yaml")
    with pytest.raises(ConfigError, match="wanted a mapping"):
        read_study(tmp_path / "complexity.yaml")


def test_a_base_that_is_not_there_is_named(tmp_path):
    found = mistakes_of(HEAD.replace(str(TINY), "no.yaml") + "cells: {a: {}}\n", tmp_path)
    assert has(found, "base:", "no.yaml is no file")
