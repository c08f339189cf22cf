"""The published numbers are those of the source: checked by sums and gains that it states elsewhere."""

from __future__ import annotations

import pytest

from jaxmtrl.studies.published import TABLES, all_references, published_value


def test_gains_over_the_base_are_those_the_source_prints():
    # T1 prints the gains .71, .61, .46 and .48; T11 +.00 for PPO with the middle density.
    gains = [round(row["PPO"] - row["base"], 2) for row in TABLES["T1"].values.values()]
    assert gains == [0.71, 0.61, 0.46, 0.48]
    assert TABLES["T11"].values["balanced"]["PPO"] == TABLES["T11"].values["balanced"]["base"]


def test_the_same_experiment_has_the_same_number_in_every_table():
    assert published_value("T5/w8-o3-q4/w8-o3-q4") == published_value("T1/w8-o3-q4/PPO")
    assert published_value("T5/w2-o12-q4/w2-o12-q4") == published_value("T1/w2-o12-q4/PPO")
    assert published_value("T10/w4-o6-q8/7B/PPO") == published_value("T3/w4-o6-q8/7B/PPO")
    assert published_value("T4/12/PPO") == published_value("T3/w2-o3-q4/1.5B/PPO")
    assert published_value("T4/16/PPO") == published_value("T1/w2-o3-q4/PPO")


def test_the_inverted_claim_has_its_two_numbers_where_the_source_has_them():
    assert published_value("T5/w2-o3-q4/w4-o6-q8") == 0.12  # transfer
    assert published_value("T3/w4-o6-q8/1.5B/PPO") == 0.59  # trained on it


def test_every_number_is_a_share_and_has_a_reference():
    references = all_references()
    assert len(references) == len(set(references)) == 8 + 8 + 8 + 16 + 6 + 20 + 20 + 9 + 8
    assert all(0 <= (published_value(reference) or 0) <= 1 for reference in references)


@pytest.mark.parametrize("reference", ["", "T1", "T1/w2-o3-q4", "T2/x/PPO", "T1/w2-o3-q4/GRPO"])
def test_there_is_no_number_where_the_source_has_none(reference):
    assert published_value(reference) is None
