"""A plan as lines for people and as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from jaxmtrl.planning.plan_of import Plan


def as_json(plan: Plan) -> str:
    """One object with every figure of `show`."""
    memory: Any = None
    if plan.memory:
        found = plan.memory
        memory = dataclasses.asdict(found) | {name: getattr(found, name) for name in ("learning", "playing", "peak")}
    line = {
        "plan": plan.source,
        "topology": plan.topology.name,
        "mesh": plan.mesh,
        "parameters": plan.parameters,
        "chip_memory": plan.topology.chip.memory,
        "memory": memory,
        "formula": plan.formula,
        "fits": plan.fits,
        "spare": plan.spare,
        "update_tokens": plan.tokens,
        "update_flops": {"model": plan.model_flops, "computed": plan.computed_flops},
        "estimates": {
            name: dataclasses.asdict(found) | {"seconds": found.seconds, "limit": found.limit}
            for name, found in plan.estimates.items()
        },
        "mfu_estimate": plan.mfu,
        "largest": plan.largest,
    }
    return json.dumps(line)


def show(plan: Plan, console: Console) -> None:
    """Prints the plan."""
    chip = plan.topology.chip
    axes = ", ".join(f"{name} {size}" for name, size in plan.mesh.items())
    console.print(
        f"[bold]{plan.source}[/bold] on {plan.topology.name} ({plan.topology.count} chips: {axes})", soft_wrap=True
    )
    console.print(f"{plan.parameters:,} parameters; {plan.tokens:,} tokens an update")
    if plan.memory:
        _show_compiled(plan, console)
    else:
        table = Table("a chip, by formula", "GiB")
        for name, size in plan.formula.items():
            table.add_row(name, _gib(size))
        console.print(table)
    verdict = "[green]fits[/green]" if plan.fits else "[red]does not fit[/red]"
    console.print(f"{verdict}: {_gib(plan.peak)} of {_gib(chip.memory)} GiB a chip, {plan.spare:.0%} to spare")
    table = Table(
        "estimate, everything at its peak rate",
        "seconds",
        "limit",
        "compute",
        "memory",
        "network",
        title_justify="left",
    )
    for name, found in plan.estimates.items():
        parts = (found.seconds, found.compute_s, found.memory_s, found.network_s)
        total, *rest = (f"{part:.3g}" for part in parts)
        if not plan.memory and plan.topology.count > 1:
            rest[-1] = "not counted"
        table.add_row(name, total, found.limit, *rest)
    console.print(table)
    console.print(
        f"update: {plan.model_flops:.3g} model FLOPs, {plan.computed_flops:.3g} computed (formula, all chips); "
        f"MFU at most {plan.mfu:.0%} (estimate: nothing waits)",
        soft_wrap=True,
    )
    for name, value in plan.largest.items():
        console.print(f"largest {name} that fits with 5 % to spare: {value}")


def _show_compiled(plan: Plan, console: Console) -> None:
    memory = plan.memory
    assert memory is not None
    programs = (memory.update, memory.prefill, memory.decode)
    table = Table("GiB a chip, compiled", "arguments", "temporaries", "host", "received", "compiled in")
    for program in programs:
        sizes = (program.arguments, program.temporaries, program.host, program.received)
        table.add_row(program.name, *map(_gib, sizes), f"{program.compile_s:.0f} s")
    console.print(table)
    for program in programs:
        kinds = [f"{seen.count} {kind} ({_gib(seen.received)} GiB)" for kind, seen in program.traffic.items()]
        console.print(f"{program.name}: {', '.join(kinds) or 'chips send each other nothing'}", soft_wrap=True)
    parts = {
        "state": memory.state,
        "sampler's weights": memory.sampler,
        "reference": memory.reference,
        "cache of all slots": memory.cache,
    }
    listed = ", ".join(f"{name} {_gib(size)}" for name, size in parts.items())
    peaks = f"peak while learning {_gib(memory.learning)}, playing {_gib(memory.playing)}"
    console.print(f"GiB a chip: {listed}; {peaks}", soft_wrap=True)


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f}"
