"""Which rows are for training, and which tell what training is worth elsewhere: by function, kind and package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from jaxmtrl.envs.swe.instance import SweInstance

SPLITS = ("train", "heldout", "unseen_kind", "unseen_package", "unseen_both")
_HELD_OUT = 0.1  # of the functions of seen packages


def split_of(instance: SweInstance, unseen_packages: Sequence[str], unseen_kinds: Sequence[str]) -> str:
    """The split of a row: in a function of "heldout" no fault of a training row lies."""
    package = instance.repo.removeprefix("pypi/") in unseen_packages
    kinds = {instance.extra.get("kind"), *instance.extra.get("kinds", ())}
    kind = bool(kinds & set(unseen_kinds))
    if package or kind:
        return "unseen_both" if package and kind else "unseen_package" if package else "unseen_kind"
    places = instance.extra.get("functions") or [instance.id]
    return "heldout" if any(_share(f"{instance.repo}:{place}") < _HELD_OUT for place in places) else "train"


def by_split(instances: Iterable[SweInstance]) -> dict[str, list[SweInstance]]:
    """Rows by the split that they say; only splits that have any."""
    found: dict[str, list[SweInstance]] = {}
    for instance in instances:
        found.setdefault(instance.extra["split"], []).append(instance)
    return {split: found[split] for split in SPLITS if split in found}


def _share(words: str) -> float:
    """A number in [0, 1) that is the same for the same words, whatever the seed."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8]) / 2**64
