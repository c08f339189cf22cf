"""Why bubblewrap does not work on a machine, and the exact cure, from what it said and what the kernel is set to."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CONTAINER = (
    "this is a container whose seccomp profile or masked /proc forbids it: start it with --privileged (as TPU "
    "containers usually are), or with --security-opt seccomp=unconfined --security-opt systempaths=unconfined "
    "--cap-add SYS_ADMIN; in Kubernetes securityContext.privileged: true"
)
_APPARMOR = (
    "Ubuntu's AppArmor forbids user namespaces: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or "
    "give /usr/bin/bwrap and this python a profile with `userns,` in /etc/apparmor.d"
)


def cannot_open(said: str) -> str:
    """The cure for a sandbox that could not be opened, or a first command that did not run."""
    if "install" in said:
        return said.rpartition(";")[2].strip()
    if "no folder" in said or "a base" in said:
        return "correct what is to be opened"
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return _APPARMOR
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting("user/max_user_namespaces") == "0":
        return "sudo sysctl -w user.max_user_namespaces=10000"
    if in_container():
        return _CONTAINER
    if "overlay" in said:
        return "a kernel of 5.11 or newer with overlayfs (modprobe overlay), or a trainer that runs as root"
    return "see docs/sandbox.md; or use the backend podman or docker, with images"


def in_container() -> bool:
    return any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv")) or (
        "KUBERNETES_SERVICE_HOST" in os.environ
    )


def kernel() -> str:
    return f"kernel {platform.release()}, {'root' if os.geteuid() == 0 else f'uid {os.geteuid()}'}"


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
