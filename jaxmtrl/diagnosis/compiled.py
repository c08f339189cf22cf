"""Everything is compiled once: batches of other lengths run the same programs."""

from __future__ import annotations

from jaxmtrl.diagnosis.bench import Rehearsal
from jaxmtrl.diagnosis.finding import Finding, none_of


def check_compiled(rehearsal: Rehearsal) -> list[Finding]:
    """What a second iteration, with other lengths, compiled."""
    before, after = rehearsal.sampler_programs
    again = sum(count - 1 for count in rehearsal.learner_programs.values())
    plan = f"sampler {before}, learner {len(rehearsal.learner_programs)} at first"
    return [
        none_of(
            "nothing compiles twice",
            rehearsal.second_compiles + again + after - before,
            what="programs",
            said=f"of a second iteration with other lengths; {plan}",
            cure="a shape, dtype or sharding changes from call to call: see Learner._call and sampling/programs.py",
        )
    ]
