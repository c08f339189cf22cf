"""See `command.py`."""

import sys

from jaxmtrl.envs.swe.inject.command import run
from jaxmtrl.errors import JaxmtrlError

if __name__ == "__main__":
    try:
        sys.exit(run())
    except JaxmtrlError as err:
        sys.exit(f"error: {err}")
