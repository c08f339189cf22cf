"""`python -m jaxmtrl.envs.swe.inject`: tasks out of packages of the registry, without a network once they are made."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jaxmtrl.envs.swe.command_line import named, positive
from jaxmtrl.envs.swe.files import must_take_files
from jaxmtrl.envs.swe.inject.bench import Bench
from jaxmtrl.envs.swe.inject.build import fault_row
from jaxmtrl.envs.swe.inject.mutators import KINDS
from jaxmtrl.envs.swe.inject.package import Package, prepare
from jaxmtrl.envs.swe.inject.releases import release_row
from jaxmtrl.envs.swe.inject.search import Search, say, survey
from jaxmtrl.envs.swe.inject.splits import SPLITS, by_split, split_of
from jaxmtrl.envs.swe.inject.statements import LEVELS
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.loading import save_instances
from jaxmtrl.envs.swe.row_rules import is_package, is_requirement
from jaxmtrl.envs.swe.sandbox.api import Base
from jaxmtrl.envs.swe.sandbox.choice import choose
from jaxmtrl.envs.swe.sources import plain_name
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.errors import ConfigError, JaxmtrlError

_TOLD = 20  # every so many instances it says how far it is


def run(arguments: Sequence[str] | None = None) -> int:
    """Makes the rows and says how fast; 1 where a package gave none."""
    options = _parser().parse_args(arguments)
    mistakes = list(_mistakes(options))
    if mistakes:
        raise ConfigError("the command line", mistakes)
    must_take_files(options.out, "--out")
    cache = TreeCache(options.cache)
    benches = _benches(options.unsafe)
    rows: list[SweInstance] = []
    failed = 0
    for wanted in options.package:
        failed += not _of_package(cache, benches, options, wanted, rows)
    for name, old, new in options.release:
        failed += not _of_release(cache, benches, options, (name, old, new), rows)
    if not rows:
        say(f"no instances; nothing was written to {options.out}")
        return 1
    _save(options.out, rows)
    return 1 if failed else 0


def _mistakes(options: argparse.Namespace) -> Iterator[str]:
    """What is wrong with arguments that the parser takes."""
    if not options.package and not options.release:
        yield "name at least one --package or --release"
    for wanted in options.package:
        name, equal, version = wanted.partition(":")[0].partition("==")
        if not is_package(name, version) or (equal and not version):
            yield f"--package {wanted!r}: wanted the name of a package of the registry, or name==version"
    for name, *versions in options.release:
        if not all(version and is_package(name, version) for version in versions):
            yield f"--release {' '.join((name, *versions))!r}: wanted the name of a package and two versions of it"
    yield from (
        f"--needs {words!r}: wanted the name of a package, with versions that will do, such as pytest>=8"
        for words in options.needs
        if not is_requirement(words)
    )
    there = {plain_name(wanted.partition(":")[0].partition("==")[0]) for wanted in options.package}
    there |= {plain_name(name) for name, *_ in options.release}
    for name in options.unseen_package:
        if plain_name(name) not in there:
            yield f"--unseen-package {name}: no --package or --release is of it; there are: {', '.join(sorted(there))}"


def _of_package(
    cache: TreeCache,
    benches: Callable[[Path, Package], Bench],
    options: argparse.Namespace,
    wanted: str,
    rows: list[SweInstance],
) -> int:
    """Adds the rows of one package; returns how many they are."""
    try:
        wanted, _, targets = wanted.partition(":")
        name, _, version = wanted.partition("==")
        package = prepare(cache, name, version, options.needs)
        bench = benches(package.tree, package)
        started = time.monotonic()
        suite = survey(bench, targets.split(",") if targets else ["."])
    except JaxmtrlError as err:
        say(f"{wanted}: left out. {err}")
        return 0
    say(
        f"{package.name} {package.version}: {len(suite.passing)} stable tests in {suite.wall_s:.1f} s, surveyed in "
        f"{time.monotonic() - started:.0f} s"
    )
    before = sum(bench.used_s)
    search = Search(bench, package, suite, seed=options.seed, kinds=options.kinds)
    found: dict[str, SweInstance] = {}
    for fault in search.faults(options.jobs, options.stop_s):
        row = fault_row(package, fault, level=options.statement, hidden=options.tests == "hidden")
        if row.bug_patch not in found and len(found) % _TOLD == _TOLD - 1:
            say(f"{package.name}: {len(found) + 1} of {options.count} instances")
        found.setdefault(row.bug_patch, _with_split(row, options))
        if len(found) >= options.count:
            break
    minutes, cpu_minutes = (time.monotonic() - search.started) / 60, (sum(bench.used_s) - before) / 60
    became = ", ".join(f"{word} {count}" for word, count in sorted(search.counts.items()))
    rate = f"{len(found) / (cpu_minutes or 1):.0f} a minute of pytest's CPU, {len(found) / minutes:.0f} by the clock"
    say(
        f"{package.name} {package.version}: {len(found)} instances of {len(search.candidates)} candidates, {rate} "
        f"({became}; licence {package.licence})"
    )
    rows += found.values()
    return len(found)


def _of_release(
    cache: TreeCache,
    benches: Callable[[Path, Package], Bench],
    options: argparse.Namespace,
    release: tuple[str, str, str],
    rows: list[SweInstance],
) -> int:
    name, *versions = release
    try:
        old, new = (prepare(cache, name, version, options.needs) for version in versions)
        row = release_row(old, new, benches, ["."], level=options.statement)
    except JaxmtrlError as err:
        say(f"{' '.join(release)}: left out. {err}")
        return 0
    say(f"{row.id}: {len(row.fail_to_pass)} tests fail, {len(row.pass_to_pass)} pass (licence {old.licence})")
    rows.append(_with_split(row, options))
    return 1


def _with_split(row: SweInstance, options: argparse.Namespace) -> SweInstance:
    split = split_of(row, [plain_name(name) for name in options.unseen_package], options.unseen_kind)
    row.extra["split"] = split  # type: ignore[index]
    return row


def _save(folder: Path, rows: Sequence[SweInstance]) -> None:
    """All rows, and those of each split; of two with one name the first. What an earlier call wrote there goes."""
    unique = list({row.id: row for row in reversed(rows)}.values())[::-1]
    save_instances(folder / "all.jsonl", unique)
    for split in SPLITS:
        members = by_split(unique).get(split)
        if members:
            save_instances(folder / "splits" / f"{split}.jsonl", members)
        else:
            (folder / "splits" / f"{split}.jsonl").unlink(missing_ok=True)
    kinds = Counter(row.extra["kind"] for row in unique)
    splits = {split: len(members) for split, members in by_split(unique).items()}
    say(f"{folder}/all.jsonl: {len(unique)} instances; splits {splits}; kinds {dict(sorted(kinds.items()))}")


def _benches(unsafe: bool) -> Callable[[Path, Package], Bench]:
    """Benches in sandboxes of bubblewrap; in plain processes only where one is told so.

    Raises:
        ConfigError: there are no sandboxes on this machine; with the cure.
    """
    backend = choose("local" if unsafe else "bwrap", unsafe=unsafe)
    return lambda tree, package: Bench(backend, Base(tree=tree, venv=package.venv), package.roots)


def _kinds(words: str) -> list[str]:
    kinds = words.split(",")
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: none of {', '.join(KINDS)}")
    return kinds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jaxmtrl.envs.swe.inject", description=__doc__)
    add = parser.add_argument
    words = "hide faults in it; TESTS are files or folders, by commas, where not all are to be run"
    add("--package", action="append", default=[], metavar="NAME[==VERSION][:TESTS]", help=words)
    words = "a repair that people made: code of OLD, tests of NEW"
    add("--release", action="append", default=[], nargs=3, metavar=("NAME", "OLD", "NEW"), help=words)
    add("--out", type=named, required=True, help="folder for all.jsonl and splits/")
    add("--seed", type=int, default=0)
    add("--count", type=positive(int), default=100, help="instances of each package at most")
    add("--jobs", type=positive(int), default=1, help="tries at a time; the rows are the same")
    add("--kinds", type=_kinds, default=list(KINDS), help=f"of faults, by commas, of {', '.join(KINDS)}")
    add(
        "--statement",
        choices=[*LEVELS, "mixed"],
        default="b",
        help="a: ids of tests; b: and what pytest says; c: behaviour",
    )
    add(
        "--tests",
        choices=["hidden", "visible"],
        default="hidden",
        help="whether files of failing tests are in the tree",
    )
    add("--unseen-package", action="append", default=[], metavar="NAME", help="kept out of the split for training")
    add("--unseen-kind", action="append", default=[], choices=KINDS, metavar="KIND", help="kept out of it too")
    add("--needs", action="append", default=[], metavar="PACKAGE", help="that tests import, beyond what is declared")
    add("--stop-s", type=positive(float), default=float("inf"), help="seconds after which a package is left")
    add("--cache", type=named, help="folder for archives, trees and environments")
    add("--unsafe", action="store_true", help="run the packages' tests as plain processes, with all your rights")
    return parser
