"""From a row to what can be played and graded: the base, the tests that decide, and where Python is.

Rows of repositories, packages and exported images have their tests in the cache. Containers have them in their image,
with `test_patch` on top, and are asked for them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from jaxmtrl.envs.swe.grade import Prepared, persist
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.sandbox.api import WORKDIR, Backend, Base, Limits
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.errors import EnvironmentFailure

# Where the images of SWE-Gym, SWE-bench and SWE-smith have the environment of the tests.
_IMAGE_PATH = "/opt/miniconda3/envs/testbed/bin:/opt/miniconda3/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_PATCH = "/run/swe/tests.patch"
_MOST_FILES, _MOST_BYTES = 2000, 64 << 20  # of tests that a patch brings


class Preparer:
    """Prepares the instances of one cache; safe to use from threads."""

    def __init__(self, cache: TreeCache, limits: Limits):
        self._cache = cache
        self._limits = limits
        self._of_images: dict[str, Mapping[str, bytes]] = {}  # tests by instance id

    def prepare(self, backend: Backend, instance: SweInstance) -> Prepared:
        """What grading wants of an instance; let go of it by `cache.release`.

        Raises:
            EnvironmentFailure: it cannot be had; with the cure.
        """
        base = self._cache.base(instance)
        try:
            return self._prepared(backend, base, instance)
        except BaseException:
            self._cache.release(instance)
            raise

    def _prepared(self, backend: Backend, base: Base, instance: SweInstance) -> Prepared:
        roots = [str(PurePosixPath(WORKDIR, root)) for root in instance.extra.get("roots") or ("src", ".")]
        return Prepared(
            base=base,
            tests=self._tests_of_image(backend, base, instance) if base.image else self._cache.tests(instance),
            roots=tuple(roots),
            environment={"PATH": _IMAGE_PATH} if base.image or base.rootfs else {},
            baseline_s=float(instance.extra.get("suite_s") or 0.0),
        )

    def _tests_of_image(self, backend: Backend, base: Base, instance: SweInstance) -> Mapping[str, bytes]:
        if instance.id not in self._of_images:
            self._of_images[instance.id] = patched_tests(backend, base, instance, self._limits)
        return self._of_images[instance.id]


def patched_tests(backend: Backend, base: Base, instance: SweInstance, limits: Limits) -> Mapping[str, bytes]:
    """The files that `test_patch` makes or changes, as they are with it; nobody has played in that sandbox.

    Raises:
        EnvironmentFailure: the patch does not fit.
    """
    if not instance.test_patch.strip():
        return {}
    patch = instance.test_patch if instance.test_patch.endswith("\n") else instance.test_patch + "\n"

    def once(_: int) -> Mapping[str, bytes]:
        sandbox = backend.open(base, limits)
        try:
            result = sandbox.run(f"git apply --whitespace=nowarn {_PATCH}", shown={_PATCH: patch.encode()})
            changes = sandbox.changes(max_files=_MOST_FILES, max_bytes=_MOST_BYTES)
        finally:
            sandbox.close()
        if result.exit_code != 0 or changes.too_large:
            said = changes.too_large or result.output[-400:].decode("utf-8", "replace")
            raise EnvironmentFailure(f"the tests of {instance.id} do not fit what {base.image} holds: {said}")
        return {change.path: change.content for change in changes.files if change.content is not None}

    return persist(once)
