"""A study's figures as one picture: a panel a split, cells along it, stages by colour, the published numbers beside."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxmtrl.stages import EVALUATED
from jaxmtrl.studies.table import Figure, published_number

POLICIES = {"untrained": "untrained", "pretrain": "pretrained", "sft": "after SFT", "rl": "after RL"}
_SPREAD = 0.14  # between the stages of one cell, of the distance of two cells
_LETTERS = 11  # of the title, to an inch
_ENTRY = 1.9  # inches of one entry of the legend


def draw(figures: Sequence[Figure], path: Path, title: str) -> str:
    """Writes the picture; error bars are 95 % intervals, small dots the seeds, hollow diamonds the published numbers.

    Returns:
        Why there is none: matplotlib is an optional package; "" if there is one.
    """
    try:
        import matplotlib
    except ImportError:
        return 'no picture, since matplotlib is missing: pip install -e ".[plot]"'
    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas = _canvas(figures, title)
    canvas.savefig(path, dpi=120)
    pyplot.close(canvas)
    return ""


def _canvas(figures: Sequence[Figure], title: str) -> Any:
    """The picture as matplotlib has it; title and legend are broken into lines where it is narrow."""
    from matplotlib import pyplot

    splits = list(dict.fromkeys(figure.split for figure in figures))
    cells = list(dict.fromkeys(figure.cell for figure in figures))
    width = max(4.0, 1.2 + 0.8 * len(cells)) * len(splits)
    canvas, axes = pyplot.subplots(
        1, len(splits), figsize=(width, 4.4), squeeze=False, constrained_layout=True, sharey=True
    )
    canvas.suptitle(textwrap.fill(title, int(width * _LETTERS)), fontsize=10)
    for axis, split in zip(axes[0], splits):
        _panel(axis, [figure for figure in figures if figure.split == split], cells, split)
    axes[0][0].set_ylabel("success")
    handles, labels = axes[0][0].get_legend_handles_labels()
    columns = min(len(labels), max(1, int(width / _ENTRY)))
    canvas.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=columns)
    return canvas


def _panel(axis: Any, figures: Sequence[Figure], cells: Sequence[str], split: str) -> None:
    policies = [policy for policy in EVALUATED if any(figure.policy == policy for figure in figures)]
    for number, policy in enumerate(policies):
        own = [figure for figure in figures if figure.policy == policy]
        places = [cells.index(figure.cell) + _SPREAD * (number - (len(policies) - 1) / 2) for figure in own]
        means = [figure.mean for figure in own]
        below = [max(0.0, figure.mean - figure.ci95[0]) for figure in own]
        above = [max(0.0, figure.ci95[1] - figure.mean) for figure in own]
        colour = f"C{number}"
        axis.errorbar(places, means, yerr=[below, above], fmt="o", color=colour, capsize=3, label=POLICIES[policy])
        for place, figure in zip(places, own):
            shares = list(figure.by_seed.values())
            axis.plot([place + 0.04] * len(shares), shares, ".", color=colour, alpha=0.5, markersize=4)
        beside = [(place, published_number(figure)) for place, figure in zip(places, own)]
        theirs = [(place, number) for place, number in beside if number is not None]
        if theirs:
            label = f"published, {POLICIES[policy]}"
            axis.plot(*zip(*theirs), "D", color=colour, fillstyle="none", label=label)
    axis.set(title=split, ylim=(-0.02, 1.02), xticks=range(len(cells)), xlim=(-0.5, len(cells) - 0.5))
    axis.set_xticklabels(cells, rotation=30, ha="right", fontsize=8)
    axis.grid(alpha=0.3)
