"""Prints a run's success table as Markdown: a row a split and one for each kind of its tasks, with 95 % intervals.

python scripts/result_table.py runs/alfworld_quickstart      (or the result.json of a run)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmtrl.evaluation import success_table
from jaxmtrl.run_folder import RESULT_FILE
from jaxmtrl.stages import EVALUATED


def markdown(result: Mapping[str, Any]) -> str:
    """The table of what result.json holds."""
    columns, rows = success_table(result["splits"], EVALUATED)
    lines = [columns, ["---"] * len(columns), *([str(cell).replace("  ", "— ") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run, or its result.json")
    given: Path = parser.parse_args().run
    try:
        print(markdown(json.loads((given / RESULT_FILE if given.is_dir() else given).read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError) as err:
        print(f"error: {given} holds no result of a run that has ended: {err!r}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
