"""Tries faults one after the other and keeps those that the package's own tests see, each time in the same way."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from jaxmtrl.envs.swe.command_line import threads
from jaxmtrl.envs.swe.inject.bench import Bench, Job, Ran, is_plain_id
from jaxmtrl.envs.swe.inject.mutators import KINDS, Site, find_sites, is_fault, mutate
from jaxmtrl.envs.swe.inject.package import Package
from jaxmtrl.envs.swe.report import same_outcomes
from jaxmtrl.errors import EnvironmentFailure

MOST_FAILING = 30  # tests that one fault may break: more say that it breaks all, not that it is hard
MOST_SHARE = 0.5  # of the stable tests
_MOST_COVERING = 60  # tests that a fault is first tried with
_SUITE_S = 600.0  # of CPU: the most that a whole suite may take
_TEXT = 3000


class NoStableTests(EnvironmentFailure):
    """A package whose tests do not run here; says what pytest said."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What a package's tests do on its clean files."""

    targets: tuple[str, ...]  # what pytest is given to run all
    passing: tuple[str, ...]  # tests that pass each time, in their order
    seconds: Mapping[str, float]
    wall_s: float  # of one run
    cpu_s: float
    covering: Mapping[str, Mapping[int, Sequence[str]]]  # of them, by file and line


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that tests see."""

    kind: str  # of its site; "multi" for several
    sites: tuple[Site, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    texts: Mapping[str, str] = field(default_factory=dict)  # what pytest said of those that fail
    messages: Mapping[str, str] = field(default_factory=dict)


def survey(bench: Bench, targets: Sequence[str], *, coverage: bool = True) -> Suite:
    """Runs the tests twice, with two orders of sets, and once more to see which lines each of them runs.

    Raises:
        NoStableTests: fewer than two of them pass each time, or coverage cannot look on.
    """
    runs = [bench.run(Job(targets=targets, cpu_s=_SUITE_S, hash_seed=seed)) for seed in (0, 1)]
    same = same_outcomes([run.report for run in runs])
    passing = tuple(test for test, outcome in same.items() if outcome == "passed" and is_plain_id(test))
    if len(passing) < 2 or not all(run.ended for run in runs):
        raise NoStableTests(f"{len(passing)} tests pass twice: {runs[0].output[-1500:]}")
    covering: dict[str, dict[int, list[str]]] = {}
    wall_s = max(run.wall_s for run in runs)
    if coverage:
        run = bench.run(Job(targets=targets, cpu_s=_SUITE_S, coverage=True))
        if not run.ended or not run.lines:
            raise NoStableTests(f"the run that looks which lines tests run came to nothing: {run.output[-1500:]}")
        stable = {test for test in passing if run.report.passed(test)}
        order = {test: number for number, test in enumerate(passing)}
        for path, lines in run.lines.items():
            covering[path] = {
                line: sorted(stable.intersection(tests), key=order.__getitem__) for line, tests in lines.items()
            }
    return Suite(
        targets=tuple(targets),
        passing=passing,
        seconds=runs[0].report.seconds,
        wall_s=wall_s,
        cpu_s=max(run.report.cpu_s for run in runs),
        covering=covering,
    )


class Search:
    """The faults of one package that its tests see, in an order that the seed alone decides."""

    def __init__(self, bench: Bench, package: Package, suite: Suite, *, seed: int, kinds: Sequence[str] = KINDS):
        self.bench = bench
        self.suite = suite
        self.seed = f"{seed}:{package.name}:{package.version}"
        self.counts: Counter[str] = Counter()  # of what became of the faults that were tried
        self.files = {path: (package.tree / path).read_bytes() for path in package.sources() if path in suite.covering}
        self.candidates = _drawn(self.files, suite, kinds, random.Random(self.seed))
        self.started = time.monotonic()

    def faults(self, jobs: int, stop_s: float = float("inf")) -> Iterator[Fault]:
        """Faults in order; the same ones whatever `jobs`, the number of tries at a time.

        Args:
            stop_s: seconds after which no more are tried: how many come then hangs on the machine.
        """
        candidates = iter(self.candidates)
        waiting: deque[Future[tuple[str, Fault | None]]] = deque()
        with threads(jobs) as pool:
            while True:
                while len(waiting) < jobs + 1 and time.monotonic() - self.started < stop_s:
                    sites = next(candidates, None)
                    if sites is None:
                        break
                    waiting.append(pool.submit(self._try, sites))
                if not waiting:
                    return
                became, fault = waiting.popleft().result()
                self.counts[became] += 1
                if fault is not None:
                    yield fault

    def _try(self, sites: tuple[Site, ...]) -> tuple[str, Fault | None]:
        """What became of a fault, in one word; and the fault where it is a good one."""
        by_file = {
            path: [site for site in sites if site.path == path] for path in sorted({site.path for site in sites})
        }
        if not all(is_fault(self.files[path], members) for path, members in by_file.items()):
            return "no fault", None
        changed = {path: mutate(self.files[path], members) for path, members in by_file.items()}
        tests = self._covering(sites)
        first = self._run(tests, changed)
        if not first.ended:
            return "died", None
        failing = [test for test in tests if not first.report.passed(test)]
        if not failing:
            return "survived", None
        if len(failing) > MOST_FAILING:
            return "broad", None
        whole = self.bench.run(
            Job(
                targets=self.suite.targets,
                cpu_s=_limit(self.suite, self.suite.passing),
                changed=changed,
                hash_seed=1,
                text=_TEXT,
            )
        )
        if not whole.ended:
            return "died", None
        fail_to_pass = [test for test in self.suite.passing if not whole.report.passed(test)]
        pass_to_pass = [test for test in self.suite.passing if whole.report.passed(test)]
        if len(fail_to_pass) > min(MOST_FAILING, MOST_SHARE * len(self.suite.passing)) or not pass_to_pass:
            return "broad", None
        if set(failing) != set(tests) & set(fail_to_pass):
            return "unstable", None
        if set(fail_to_pass) - set(failing):
            again = self._run(fail_to_pass, changed)
            if not again.ended or any(again.report.passed(test) for test in fail_to_pass):
                return "unstable", None
        return "valid", Fault(
            kind=sites[0].kind if len(sites) == 1 else "multi",
            sites=sites,
            fail_to_pass=tuple(fail_to_pass),
            pass_to_pass=tuple(pass_to_pass),
            texts={test: whole.report.texts.get(test, "") for test in fail_to_pass},
            messages={test: whole.report.messages.get(test, "") for test in fail_to_pass},
        )

    def _run(self, tests: Sequence[str], changed: Mapping[str, bytes]) -> Ran:
        return self.bench.run(Job(targets=tests, cpu_s=_limit(self.suite, tests), changed=changed))

    def _covering(self, sites: Sequence[Site]) -> list[str]:
        return _covering(self.suite, sites, random.Random(f"{self.seed}:{sites!r}"))


def _limit(suite: Suite, tests: Sequence[str]) -> float:
    """Seconds of CPU for a run of `tests`: a fault may make a loop endless."""
    share = sum(suite.seconds.get(test, 0.0) for test in tests) / (sum(suite.seconds.values()) or 1.0)
    return 3 * suite.cpu_s * share + 4


def _covering(suite: Suite, sites: Sequence[Site], draw: random.Random | None = None) -> list[str]:
    """Tests that run a line of each site, or where there are too many, some of them."""
    meant: set[str] = set()
    for site in sites:
        lines = suite.covering.get(site.path, {})
        meant.update(test for line in range(site.first_line, site.last_line + 1) for test in lines.get(line, ()))
    tests = [test for test in suite.passing if test in meant]
    if draw is None or len(tests) <= _MOST_COVERING:
        return tests
    chosen = set(draw.sample(range(len(tests)), _MOST_COVERING))
    return [test for number, test in enumerate(tests) if number in chosen]


def _drawn(
    files: Mapping[str, bytes], suite: Suite, kinds: Sequence[str], draw: random.Random
) -> list[tuple[Site, ...]]:
    """Every fault that some test runs, mixed, the kinds in turn so that rare ones come early too."""
    sites = [site for path in sorted(files) for site in find_sites(path, files[path])]
    sites = [site for site in sites if _covering(suite, [site])]
    by_kind: dict[str, list[tuple[Site, ...]]] = {kind: [] for kind in KINDS if kind in kinds}
    for site in sites:
        if site.kind in by_kind:
            by_kind[site.kind].append((site,))
    if "multi" in by_kind:
        by_kind["multi"] = _several([site for site in sites if site.kind != "stub"], draw)
    for group in by_kind.values():
        draw.shuffle(group)
    drawn = []
    while any(by_kind.values()):
        turn = [kind for kind in by_kind if by_kind[kind]]
        draw.shuffle(turn)
        drawn += [by_kind[kind].pop() for kind in turn]
    return drawn


def _several(sites: Sequence[Site], draw: random.Random) -> list[tuple[Site, ...]]:
    """Two or three faults of one file, in functions of their own."""
    by_file: dict[str, dict[str, list[Site]]] = {}
    for site in sites:
        by_file.setdefault(site.path, {}).setdefault(site.function, []).append(site)
    found = []
    for functions in by_file.values():
        for _ in range(len(functions) // 2):
            names = draw.sample(sorted(functions), min(len(functions), draw.choice((2, 3))))
            found.append(tuple(sorted(draw.choice(functions[name]) for name in names)))
    return [several for several in found if len(several) > 1]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
