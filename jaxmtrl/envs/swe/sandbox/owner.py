"""Who commands run as: never root. Root's sandboxes belong to a user that exists for nothing else."""

from __future__ import annotations

import os
from pathlib import Path

USER = 58_231  # in nobody's /etc/passwd, and below the 65,536 that a container has


def sandbox_user() -> int | None:
    """The uid, and gid, that a root's sandboxes run as; None where we are not root and they run as we do."""
    return USER if os.geteuid() == 0 else None


def hand_over(tree: Path) -> None:
    """Makes `tree` the sandbox user's, without which an overlay cannot copy its files up; at once if it already is.

    Does nothing unless we are root. The folder itself comes last, so that a half done tree is begun again; two at
    once do no harm. Links are not followed.
    """
    user = sandbox_user()
    if user is None or os.lstat(tree).st_uid == user:
        return
    for folder, folders, files in os.walk(tree, topdown=False):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
    os.chown(tree, user, user, follow_symlinks=False)
