"""A picture of one panel is narrow; its title and its legend must not be cut off."""

from pathlib import Path

import pytest

from jaxmtrl.studies import picture
from jaxmtrl.studies.table import Figure

pytest.importorskip("matplotlib")


def figure(cell: str, split: str, policy: str) -> Figure:
    return Figure(
        cell=cell,
        split=split,
        policy=policy,
        by_seed={0: 0.4, 1: 0.5, 2: 0.6},
        n=100,
        failed=0,
        mean=0.5,
        ci95=(0.4, 0.6),
        pooled_ci95=(0.45, 0.55),
        turns=6.0,
        invalid_action_rate=0.1,
        model_params=370_000,
        published={"pretrain": "T1/w2-o3-q4/base", "rl": "T1/w2-o3-q4/PPO"}.get(policy, ""),
    )


@pytest.mark.parametrize("splits", [("heldout",), ("heldout", "harder"), ("a", "b", "c", "d", "e")])
def test_title_and_legend_stay_inside(splits):
    figures = [
        figure(cell, split, policy)
        for split in splits
        for cell in ("w2-o3-q4", "w8-o3-q4", "w2-o12-q4", "w8-o12-q4")
        for policy in ("untrained", "pretrain", "sft", "rl")
    ]
    canvas = picture._canvas(figures, "complexity: 0.37M parameters, 3 seeds, n = 100 games, 95 % intervals")
    canvas.draw_without_rendering()
    width, height = canvas.get_size_inches() * canvas.dpi
    for part in (canvas._suptitle, canvas.legends[0]):
        box = part.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height


def test_draw_writes_it(tmp_path: Path):
    assert picture.draw([figure("w2-o3-q4", "heldout", "rl")], tmp_path / "it.png", "a title") == ""
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")
