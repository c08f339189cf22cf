"""Starts pytest in a sandbox so that no file of the workspace can take the place of pytest or the standard library.

It is run as a program, by the Python that has pytest (3.7 or newer), from a folder that holds the report plugin and
nothing else. Folders of the workspace that Python shall import from come as the first argument, separated by colons;
they are put behind the standard library and before what is installed.
"""

import os
import sys

import jaxmtrl_report  # pyright: ignore[reportMissingImports]
import pytest


def main(roots, arguments):
    sys.path.pop(0)  # our own folder; the plugin is in memory
    installed = [at for at, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages"))]
    place = installed[0] if installed else len(sys.path)
    there = [root for root in roots.split(":") if os.path.isdir(root)]
    sys.path[place:place] = there
    # Programs that tests start find the workspace too.
    os.environ["PYTHONPATH"] = os.pathsep.join([*there, *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.argv = ["pytest", *arguments]
    return int(pytest.main(arguments, plugins=[jaxmtrl_report]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
