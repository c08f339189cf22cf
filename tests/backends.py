"""Pools of both kinds under one signature, for tests of what both promise. Those of Ray share one local cluster."""

from __future__ import annotations

import os

import pytest

from jaxmtrl.rollout.pool import MultiprocessPool

BACKENDS = ("multiprocess", pytest.param("ray", marks=pytest.mark.ray))
CLUSTER_CPUS = 4  # as counted by Ray; a worker reserves a quarter of one


def pool_maker(backend):
    """Makes pools of one kind: `make_pool(factory, options, **changes)`, by default of one worker that probes."""
    if backend == "ray":
        start_cluster()

    def make_pool(factory="probe_env:make", options=None, **changes):
        settings = {"workers": 1, "step_timeout_s": 20.0, "reset_timeout_s": 20.0, "recycle_after": 0} | changes
        if backend == "multiprocess":
            return MultiprocessPool(factory, options or {}, **settings)
        from jaxmtrl.rollout.ray_pool import RayPool

        return RayPool(factory, options or {}, **settings)

    return make_pool


def start_cluster():
    """Starts a local cluster, once in this process; it ends with the process."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if not ray.is_initialized():
        ray.init(address="local", num_cpus=CLUSTER_CPUS, include_dashboard=False)
