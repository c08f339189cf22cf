"""A study's results as files: Markdown, CSV, JSON and a picture, all of them new or none.

What is printed is made from the figures alone, so that the four agree.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxmtrl.stages import EVALUATED
from jaxmtrl.studies.findings import Findings
from jaxmtrl.studies.picture import POLICIES, draw
from jaxmtrl.studies.published import SOURCE, TABLES
from jaxmtrl.studies.table import Figure, Interval, Verdict, published_number

_READING = """An entry is the mean success of the seeds with its 95 % interval, which answers for other seeds and other
games: it reaches as far as the wider of Student's over the seeds and Wilson's over the games of one seed (every seed
plays the same games). A difference is taken seed by seed, and its interval is the wider of Student's and Newcombe's; if
that holds 0, no direction can be told."""
_ONE_SEED = "- One seed and 100 games a number, and no intervals: the standard error is up to 5 points."


def write_pages(findings: Findings, out: Path) -> tuple[list[Path], str]:
    """Writes NAME.md, .csv, .json and .png below `out`.

    Each is moved into place when all are whole, so that what stands there is never half of one.

    Returns:
        The files, and why there is no picture ("" if there is one).

    Raises:
        OSError: `out` cannot be written.
    """
    name = findings.study.name
    out.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=out))
    try:
        no_picture = draw(findings.figures, made / f"{name}.png", _size_line(findings))
        (made / f"{name}.csv").write_text(as_csv(findings), encoding="utf-8")
        content = json.dumps(as_json(findings), indent=2, ensure_ascii=False, allow_nan=False)
        (made / f"{name}.json").write_text(content + "\n", encoding="utf-8")
        page = as_markdown(findings, "" if no_picture else f"{name}.png")
        (made / f"{name}.md").write_text(page, encoding="utf-8")
        written = sorted(out / file.name for file in made.iterdir())
        for path in written:
            os.replace(made / path.name, path)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return written, no_picture


def as_json(findings: Findings) -> dict[str, Any]:
    """`seeds`, `n` (games a seed and split, the fewest) and `rows`, one a figure; then claims and circumstances."""
    return {
        "study": findings.study.name,
        "about": findings.study.about,
        "source": SOURCE,
        "seeds": list(findings.seeds),
        "n": min((figure.n for figure in findings.figures), default=0),
        "model_params": sorted({figure.model_params for figure in findings.figures}),
        "machines": list(findings.machines),
        "minutes_per_run": round(findings.minutes / findings.ended, 1) if findings.ended else None,
        "command": findings.command,
        "missing": [run.name for run in findings.missing],
        "rows": [_row(figure) for figure in findings.figures],
        "claims": [_claim_row(verdict) for verdict in findings.verdicts],
    }


def _row(figure: Figure) -> dict[str, Any]:
    return {
        "cell": figure.cell,
        "split": figure.split,
        "policy": figure.policy,
        "success": round(figure.mean, 4),
        "ci95": _rounded(figure.ci95),
        "pooled_ci95": _rounded(figure.pooled_ci95),
        "by_seed": {str(seed): round(share, 4) for seed, share in figure.by_seed.items()},
        "n": figure.n,
        "failed": figure.failed,
        "turns": round(figure.turns, 2),
        "invalid_action_rate": round(figure.invalid_action_rate, 4),
        "model_params": figure.model_params,
        "published": figure.published or None,
        "published_success": published_number(figure),
    }


def _claim_row(verdict: Verdict) -> dict[str, Any]:
    return {
        "says": verdict.claim.says,
        "by": verdict.claim.by,
        "higher": verdict.claim.higher,
        "lower": verdict.claim.lower,
        "difference": None if verdict.difference is None else round(verdict.difference, 4),
        "ci95": verdict.ci95 and _rounded(verdict.ci95),
        "direction": verdict.word,
        "published": verdict.published and list(verdict.published),
        "published_ci95": verdict.published_ci95 and _rounded(verdict.published_ci95),
        "published_direction": verdict.published_word,
    }


def as_csv(findings: Findings) -> str:
    """One line a figure, with a column for every seed; empty where a seed has not ended."""
    file = io.StringIO()
    rows = [_row(figure) for figure in findings.figures]
    plain = [name for name in (rows[0] if rows else {}) if name not in ("ci95", "pooled_ci95", "by_seed")]
    bounds = ["ci95_low", "ci95_high", "pooled_ci95_low", "pooled_ci95_high"]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*plain, *bounds, *(f"seed_{seed}" for seed in findings.seeds)])
    for row in rows:
        shares = [row["by_seed"].get(str(seed), "") for seed in findings.seeds]
        values = ["" if row[name] is None else row[name] for name in plain]
        writer.writerow([*values, *row["ci95"], *row["pooled_ci95"], *shares])
    return file.getvalue()


def as_markdown(findings: Findings, picture: str) -> str:
    """The page for people.

    Args:
        picture: file name of the picture; "" leaves it out.
    """
    study = findings.study
    parts = [f"# Study: {study.name}{' (smoke grid: it shows that the study runs, no more)' if findings.smoke else ''}"]
    parts += [study.about, f"    {findings.command}"]
    if findings.missing:
        names = ", ".join(run.name for run in findings.missing)
        parts.append(f"**Not complete**: without {names}, which have not ended. The same command goes on.")
    if picture:
        parts.append(f"![Success by cell, ours with intervals beside the published numbers]({picture})")
    parts += [_caption(findings), _success_tables(findings), _READING]
    if findings.verdicts:
        parts += ["## Does the direction agree?", _claims_table(findings)]
    if study.notes:
        parts += ["## What to know", "\n".join(f"- {note}" for note in study.notes)]
    faults = [f"- {name}: {fault}" for name in study.sources for fault in TABLES[name].faults]
    if faults:
        parts += [f"## What is known of the published numbers ({SOURCE})", "\n".join([_ONE_SEED, *faults])]
    return "\n\n".join(parts) + "\n"


def _caption(findings: Findings) -> str:
    figures, model = findings.figures, _model(findings)
    theirs = sorted({TABLES[name].model for name in findings.study.sources})
    beside = f" (the source: {'; '.join(theirs)})" if theirs else ""
    games = sorted({figure.n for figure in figures})
    n = " to ".join(str(count) for count in dict.fromkeys([games[0], games[-1]])) if games else "0"
    failed = sum(figure.failed for figure in figures)
    broken = f" {failed} episodes failed and count nowhere." if failed else ""
    minutes = f"{findings.minutes / findings.ended:.1f} min of training a run" if findings.ended else "no run has ended"
    machine = "; ".join(findings.machines) or "the machine was not noted"
    seeds = ", ".join(map(str, findings.seeds))
    return f"{model}{beside}; seeds {seeds}; n = {n} games a seed; {minutes} on {machine}.{broken}"


def _model(findings: Findings) -> str:
    """The size of the model, or of each cell's."""
    by_cell = {figure.cell: _millions(figure.model_params) for figure in findings.figures}
    if len(set(by_cell.values())) == 1:
        return f"A decoder of {next(iter(by_cell.values()))} parameters"
    return f"Decoders of {', '.join(f'{size} ({cell})' for cell, size in by_cell.items())} parameters"


def _size_line(findings: Findings) -> str:
    """The caption inside the picture, for it may be shown without its page."""
    sizes = " to ".join(dict.fromkeys(_millions(pick(f.model_params for f in findings.figures)) for pick in (min, max)))
    n = min(figure.n for figure in findings.figures)
    return f"{findings.study.name}: {sizes} parameters, {len(findings.seeds)} seeds, n = {n} games, 95 % intervals"


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f}M" if count < 1e9 else f"{count / 1e9:.2f}B"


def _success_tables(findings: Findings) -> str:
    """One table a split: a row a cell, a column a stage, the published number behind ours."""
    tables = []
    for split in dict.fromkeys(figure.split for figure in findings.figures):
        own = {(figure.cell, figure.policy): figure for figure in findings.figures if figure.split == split}
        policies = [policy for policy in EVALUATED if any(key[1] == policy for key in own)]
        published = [policy for policy in policies if any(f.published for key, f in own.items() if key[1] == policy)]
        columns = ["cell", *(POLICIES[policy] for policy in policies), "after RL, by seed"]
        columns += [f"published: {POLICIES[policy]}" for policy in published]
        lines = [f"**{split}**", "", _line(columns), _line(["---"] * len(columns))]
        for cell in dict.fromkeys(cell for cell, _ in own):
            entries = [_entry(own.get((cell, policy))) for policy in policies]
            last = own.get((cell, "rl"))
            seeds = " ".join(_share(share) for share in last.by_seed.values()) if last else "-"
            theirs = [_theirs(own.get((cell, policy))) for policy in published]
            lines.append(_line([cell, *entries, seeds, *theirs]))
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _claims_table(findings: Findings) -> str:
    columns = ["claim", "by", "published", "ours", "difference", "direction"]
    means = {figure.reference: figure.mean for figure in findings.figures}
    lines = [_line(columns), _line(["---"] * len(columns))]
    for verdict in findings.verdicts:
        claim = verdict.claim
        pair = [means.get(claim.higher), means.get(claim.lower)]
        ours = " against ".join("-" if mean is None else _share(mean) for mean in pair)
        change = "-"
        if verdict.difference is not None and verdict.ci95 is not None:
            change = f"{verdict.difference:+.2f} [{verdict.ci95[0]:+.2f}, {verdict.ci95[1]:+.2f}]"
        theirs = "-"
        if verdict.published:
            theirs = f"{_share(verdict.published[0])} against {_share(verdict.published[1])} ({verdict.published_word})"
        lines.append(_line([claim.says, claim.by, theirs, ours, change, f"**{verdict.word}**"]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _entry(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    return f"{_share(figure.mean)} [{_share(figure.ci95[0])}, {_share(figure.ci95[1])}]"


def _theirs(figure: Figure | None) -> str:
    number = published_number(figure) if figure else None
    return "-" if figure is None or number is None else f"{_share(number)} ({figure.published.partition('/')[0]})"


def _share(share: float) -> str:
    return f"{share:.2f}".replace("0.", ".", 1) if share < 0.995 else "1.00"


def _rounded(bounds: Interval) -> list[float]:
    return [round(bound, 4) for bound in bounds]
