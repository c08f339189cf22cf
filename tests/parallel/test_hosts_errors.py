"""Errors that processes tell each other arrive as they were."""

from __future__ import annotations

import pickle

import pytest

from jaxmtrl.errors import ConfigError, JaxmtrlError, ResumeError
from jaxmtrl.parallel.hosts import ALONE, open_in_order


@pytest.mark.parametrize(
    "error", [ConfigError("a file", ["one", "two"]), ResumeError("taken")], ids=["config", "resume"]
)
def test_an_error_survives_the_way_to_another_process(error):
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error) and str(arrived) == str(error)


def test_one_process_alone_raises_its_own_error():
    error = ConfigError("a file", ["one"])

    def make():
        raise error

    with pytest.raises(JaxmtrlError) as raised:
        open_in_order(ALONE, make)
    assert raised.value is error
