"""Makes TextWorld games and keeps them on disk, each beside a page that tells how it is won.

A cached game is three files: `<seed>.z8` (what is played), `<seed>.json` (TextWorld's own description of it) and
`<seed>.meta.json` (`GameInfo`), which is written last: where it is, the game is whole. TextWorld itself is imported
only inside the processes that build (1.4 s of import, and a parser that is not thread-safe).
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxmtrl.errors import EnvironmentFailure

_LEVEL = re.compile(r"w(\d+)-o(\d+)-q(\d+)")
# Names of the basic theme with two digits, which the plain one does without: half of them double the digit ("box77"),
# and telling box7 from box77 is a test of counting, not of play.
_NOUNS = ("room", "box", "door", "stand", "thing", "snack", "key")
_NUMBERED = [f"{noun}{number:02}" for noun in _NOUNS for number in range(100)]
_SIMPLE = re.compile(r"simple-(sparse|balanced|dense)")


@dataclass(frozen=True, kw_only=True)
class GameSpec:
    """Which game; equal specs are equal games."""

    level: str  # "w2-o3-q4": rooms, objects, quest length; or "simple-dense": the fixed house with dense rewards
    theme: str  # "house", "basic" or "plain": how rooms and things are named
    seed: int
    path: str  # absolute, of the .z8 file

    def __str__(self) -> str:
        return f"{self.level} ({self.theme}) with seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class GameInfo:
    """What is known of a game without playing it."""

    objective: str  # tells the whole way
    goal: str  # tells only the last thing to do
    walkthrough: list[str]  # commands that win
    max_score: int  # what the game's own score is at the win

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """Equal for two games that are the same to a player."""
        return (self.objective, *self.walkthrough)


def level_sizes(level: str) -> tuple[int, int, int] | None:
    """Rooms, objects and quest length of a level such as "w2-o3-q4"; None if the name is not of that form."""
    match = _LEVEL.fullmatch(level)
    sizes = tuple(int(digits) for digits in match.groups()) if match else ()
    return (sizes[0], sizes[1], sizes[2]) if sizes and min(sizes) > 0 else None


def read_info(path: str) -> GameInfo:
    """The page beside the game at `path` (.z8).

    Raises:
        EnvironmentFailure: the game has not been made.
    """
    try:
        return GameInfo(**json.loads(_info_path(path).read_text("utf-8")))
    except FileNotFoundError as err:
        raise EnvironmentFailure(
            f"the TextWorld game {path} has not been made; run scripts/make_games.py with the same config, or call "
            "Environment.prepare."
        ) from err


def is_made(path: str) -> bool:
    """True if the game at `path` (.z8) and its pages are whole."""
    return _info_path(path).exists()


def build_games(specs: Sequence[GameSpec], workers: int, report: Callable[[int, int], None]) -> None:
    """Builds the games of `specs` that are missing, in `workers` spawned processes (about 1 s of CPU a game).

    Two processes may build the same games at once: every file is moved into place whole, and both write the same game.

    Args:
        report: called with (games there, len(specs)) at the start and after every game.

    Raises:
        EnvironmentFailure: games that could not be built, with level and seed; the others are built all the same.
    """
    missing = [spec for spec in specs if not is_made(spec.path)]
    there = len(specs) - len(missing)
    report(there, len(specs))
    if not missing:
        return
    failures = []
    # spawn: forking a process that has started jax deadlocks
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(missing)), mp_context=spawn, initializer=_end_with_parent)
    try:
        jobs = {pool.submit(build_game, spec): spec for spec in missing}
        for job in as_completed(jobs):
            error = job.exception()
            if error is not None:
                failures.append(f"{jobs[job]}: {type(error).__name__}: {error}")
            else:
                there += 1
                report(there, len(specs))
    finally:
        pool.shutdown(cancel_futures=True)
    if failures:
        listed = "\n".join(f"  - {failure}" for failure in sorted(failures)[:10])
        raise EnvironmentFailure(f"{len(failures)} TextWorld games could not be built:\n{listed}")


def _end_with_parent() -> None:
    """Ends this process when its parent is killed; the executor's workers would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def build_game(spec: GameSpec) -> None:
    """Makes and compiles one game in this process. Safe to run twice at once for the same game."""
    if is_made(spec.path):  # another process was faster
        return
    target = Path(spec.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".building-{spec.seed}-", dir=target.parent))  # same disk: replace is atomic
    try:
        options = _game_options(spec, str(folder / target.name))
        game, info = _make_simple(spec, options) if _SIMPLE.fullmatch(spec.level) else _make_custom(options)
        game.save(str(folder / target.with_suffix(".json").name))
        _compile(game, folder / target.name)
        page = folder / "info"
        page.write_text(json.dumps(asdict(info), indent=1), "utf-8")
        os.replace(folder / target.name, target)
        os.replace((folder / target.name).with_suffix(".json"), target.with_suffix(".json"))
        os.replace(page, _info_path(spec.path))  # last: it says that the others are there
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compile(game: Any, path: Path) -> None:
    """Writes the Z-code of `game` to `path`: the bytes `textworld.generator.compile_game` writes, in 84 % of the time.

    Compiling is nine tenths of making a game, and Inform spends part of it on an index in HTML that nobody reads.
    """
    from textworld.generator.inform7 import generate_inform7_source
    from textworld.generator.inform7.world2inform7 import I7_DEFAULT_PATH

    project = path.with_suffix(".inform")
    (project / "Source").mkdir(parents=True)
    (project / "Source" / "story.ni").write_text(generate_inform7_source(game), "utf-8")
    (project / "uuid.txt").touch()  # Inform asks for it
    inform = Path(os.environ.get("INFORM_HOME") or str(I7_DEFAULT_PATH)) / "share" / "inform7"
    compilers = inform / "Compilers"
    to_inform6 = ["--internal", str(inform / "Internal"), "--format=.z8", "--project", str(project), "-noindex"]
    _run([str(compilers / "ni"), *to_inform6])
    _run([str(compilers / "inform6"), "-E2wSv8F0", str(project / "Build" / "auto.inf"), str(path)])


def _run(command: list[str]) -> None:
    """Runs a compiler; what it said goes into the error, for its exit code says nothing."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip()[-500:]
        raise EnvironmentFailure(f"{Path(command[0]).name} ended with exit code {done.returncode}: {said}")


def _info_path(path: str) -> Path:
    return Path(path).with_suffix(".meta.json")


def _game_options(spec: GameSpec, path: str) -> Any:
    """What `tw-make custom --world-size W --nb-objects O --quest-length Q --seed S --theme T` would use."""
    import textworld
    from textworld.generator.data import KnowledgeBase

    options = textworld.GameOptions()
    options.seeds = spec.seed
    options.path = path
    options.force_recompile = True
    options.grammar.theme = "basic" if spec.theme == "plain" else spec.theme
    if spec.theme == "plain":
        options.grammar.names_to_exclude = _NUMBERED
    options.kb = KnowledgeBase.default()  # parsed once a process: parsing is 84 % of making a game
    sizes = level_sizes(spec.level)
    if sizes is not None:
        options.nb_rooms, options.nb_objects, options.quest_length = sizes
        # the command line branches quests up to 5 wide; the Python default is 1, which gives other games
        options.chaining.min_breadth, options.chaining.max_breadth, options.chaining.min_depth = 1, 5, 1
    return options


def _make_custom(options: Any) -> tuple[Any, GameInfo]:
    from numpy.random import RandomState
    from textworld.generator import make_game, make_grammar
    from textworld.generator.text_generation import assign_description_to_quest

    game = make_game(options)
    objective = game.objective
    brief = options.grammar.copy()
    brief.only_last_action = True  # as `tw-make --only-last-action`, drawn after the game so that it stays the same
    grammar = make_grammar(brief, rng=RandomState(options.seeds["grammar"]))
    goal = " ".join(assign_description_to_quest(quest, game, grammar) for quest in game.quests)
    return game, _info(game, objective, goal)


def _make_simple(spec: GameSpec, options: Any) -> tuple[Any, GameInfo]:
    from textworld.challenges.tw_simple import simple

    simple.KnowledgeBase = _ParsedOnce  # its make() parses the same files for every game
    match = _SIMPLE.fullmatch(spec.level)
    rewards = match.group(1) if match else ""
    settings: dict[str, Any] = {"rewards": rewards, "goal": "detailed", "test": False}
    game = simple.make(settings, options)
    goal = next(str(info.desc) for info in game.infos.values() if info.name == "note")  # what `--goal brief` would say
    return game, _info(game, game.objective, goal)


def _info(game: Any, objective: str, goal: str) -> GameInfo:
    words = [" ".join(text.split()) for text in (objective, goal)]
    return GameInfo(
        objective=words[0], goal=words[1], walkthrough=list(game.walkthrough), max_score=int(game.max_score)
    )


class _ParsedOnce:
    """Stands in for TextWorld's KnowledgeBase where only `load(folder)` is called."""

    @staticmethod
    @functools.cache
    def load(folder: str) -> Any:
        from textworld.generator.data import KnowledgeBase

        return KnowledgeBase.load(folder)
