"""A pytest plugin that says which tests run which line: coverage with one context a test. Stand-alone, like the other.

Writes one JSON object into the file named by JAXMTRL_COVERAGE: {"tests": [id, …], "files": {path: {line: [number of a
test, …]}}}. Lines that run with an import belong to no test and are left out.
"""

import json
import os

import coverage  # pyright: ignore[reportMissingImports]
import pytest

_MOST_TESTS = 400  # that are told for one line

_path = os.environ.pop("JAXMTRL_COVERAGE", "")
_root = os.getcwd()
_coverage = coverage.Coverage(data_file=None, config_file=False, include=[_root + "/*"], messages=False)
_coverage.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    _coverage.switch_context(item.nodeid)
    yield
    _coverage.switch_context("")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    _coverage.stop()
    data = _coverage.get_data()
    tests = {}
    files = {}
    for path in sorted(data.measured_files()):
        lines = {}
        for line, contexts in sorted(data.contexts_by_lineno(path).items()):
            names = sorted(context for context in contexts if context)[:_MOST_TESTS]
            if names:
                lines[line] = [tests.setdefault(name, len(tests)) for name in names]
        if lines:
            files[os.path.relpath(path, _root)] = lines
    with open(_path, "w") as file:
        json.dump({"tests": list(tests), "files": files}, file)
