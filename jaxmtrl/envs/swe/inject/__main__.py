"""See `command.py`."""

import sys

from jaxmtrl.envs.swe.command_line import ended
from jaxmtrl.envs.swe.inject.command import run

if __name__ == "__main__":
    words = "no rows were written; the same command begins anew, with what it has fetched and made"
    sys.exit(ended(run, interrupted=words))
