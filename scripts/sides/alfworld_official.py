"""The official ALFWorld engine, played over standard input and output: a line of JSON each way.

    python scripts/sides/alfworld_official.py [--quick]

Needs alfworld, textworld and fast-downward-textworld (scripts/setup_alfworld_official.sh). Requests and answers:

    {"problem": PDDL, "task": sentence, "wording": "modern" | "classic"}   a new game
    {"command": text}                                                      a step of it
    -> {"observation", "admissible", "won", "done", "reward", "seconds"}   seconds: processor time, all of it

--quick keeps what the engine works out again and again: translations of one problem, parsed templates and queries, and
copies that nobody changes. What is printed stays the same, letter by letter (`scripts/check_alfworld.py --sides`).
"""

from __future__ import annotations

import copy
import functools
import json
import os
import sys
import time
from typing import Any

MODERN, CLASSIC = "modern", "classic"
# What the text grammar of json_2.1.1 says in place of today's; it has no help either.
_OLDER = {
    "You arrive at {r.name}.": "You arrive at {lend.name}.",
    "move {o} to {r}": "put {o} in/on {r}",
    "You move the {o.name} to the {r.name}.": "You put the {o.name} in/on the {r.name}.",
}


def quicken() -> None:
    """Replaces functions of textworld by ones that remember their results."""
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    parse, translate = textgen._parse_and_convert, fast_downward.pddl2sas
    symbols: dict[Any, Any] = {}
    last: dict[str, Any] = {}

    def parse_once(*args: Any, **kwargs: Any) -> Any:
        key = (args, kwargs["rule_name"])
        if key not in symbols:
            symbols[key] = parse(*args, **kwargs)
        return copy.deepcopy(symbols[key])

    def translate_once(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        # The optimised form only serves the engine's own planner, which is never asked here.
        if last.get("problem") != (domain, problem):
            last.update(problem=(domain, problem), answer=translate(domain, problem, verbose=verbose))
        return last["answer"]

    def share_context(context: dict[str, Any]) -> dict[str, Any]:
        return context | {"variables": dict(context["variables"]), "mapping": dict(context["mapping"])}

    textgen._parse_and_convert = parse_once
    textgen.copy_context = share_context
    fast_downward.pddl2sas = translate_once
    Rule.parse_conjunctive_query = functools.lru_cache(maxsize=None)(Rule.parse_conjunctive_query)


class Official:
    """One game of the official engine at a time, made as ALFWorld makes it."""

    def __init__(self) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
        from textworld.envs.pddl import PddlEnv

        with open(ALFRED_PDDL_PATH) as domain, open(ALFRED_TWL2_PATH) as grammar:
            self._domain, self._grammar = domain.read(), grammar.read()
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        self._make = lambda: AlfredDemangler(PddlEnv(infos))
        self._env: Any = None

    def reset(self, problem: str, task: str, wording: str) -> dict[str, Any]:
        self._env = self._make()
        domain, grammar = self._domain, self._grammar
        if wording == CLASSIC:
            for text, older in _OLDER.items():
                if text not in grammar:
                    raise SystemExit(f"the installed alfworld has no {text!r} in its grammar; install alfworld==0.4.2")
                grammar = grammar.replace(text, older)
            grammar = grammar[: grammar.index("action help")]
            domain = domain[: domain.index("(:action help")] + ")"
        data = {
            "pddl_domain": domain,
            "grammar": grammar.replace("UNKNOWN GOAL", task),
            "pddl_problem": problem,
            "solvable": True,
            "walkthrough": [],
        }
        self._env.load(data)
        return _answer(self._env.reset(), 0, False)

    def step(self, command: str) -> dict[str, Any]:
        return _answer(*self._env.step(command))


def _answer(state: Any, reward: float, done: bool) -> dict[str, Any]:
    return {
        "observation": state["feedback"],
        "admissible": state["admissible_commands"],
        "won": bool(state["won"]),
        "reward": reward,
        "done": bool(done),
    }


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engine prints
    if "--quick" in sys.argv[1:]:
        quicken()
    official = Official()
    for line in sys.stdin:
        request = json.loads(line)
        began = time.process_time()
        answer = official.step(request["command"]) if "command" in request else official.reset(**request)
        answer["seconds"] = time.process_time() - began
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
