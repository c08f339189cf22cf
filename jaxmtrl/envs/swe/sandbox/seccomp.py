"""The filter of system calls that every command runs under: what a namespace leaves open and no test suite needs.

Written as the kernel reads it, a list of `struct sock_filter`; see seccomp(2) and linux/filter.h.
"""

from __future__ import annotations

import platform
import struct

# System call numbers: x86-64, and the generic table that aarch64 uses. None: there is no such call.
_FORBIDDEN = {
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "acct": (163, 89),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
}
# Answered as if the kernel were too old: their users then do without. clone3 hides its flags from a filter; the others
# make memory that no size-limited file system and no process accounts for.
_UNKNOWN = {"clone3": (435, 435), "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194)}
_CLONE, _SOCKET, _SOCKETPAIR, _IOCTL = (56, 220), (41, 198), (53, 199), (16, 29)
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_FAMILIES = (1, 2, 10, 16)  # unix, internet, internet 6, netlink: those that the network namespace separates
_TTY_INJECTIONS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_AUDIT = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in struct seccomp_data


def supported() -> bool:
    """Whether the machine's system call numbers are known here."""
    return platform.machine() in _AUDIT


def program() -> bytes:
    """The filter, for bwrap's --seccomp."""
    audit, column = _AUDIT[platform.machine()]
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if column == 0:  # the x32 calls, a second set of numbers for the same things
        code += _when(_AT_LEAST, 0x40000000, _EPERM)
    for numbers in _FORBIDDEN.values():
        code += _when(_EQUAL, numbers[column], _EPERM)
    for numbers in _UNKNOWN.values():
        code += _when(_EQUAL, numbers[column], _ENOSYS)
    code += _argument(_CLONE[column], _FIRST_ARGUMENT, _when(_ANY_BIT, _NEW_NAMESPACES, _EPERM))
    injections = [line for request in _TTY_INJECTIONS for line in _when(_EQUAL, request, _EPERM)]
    code += _argument(_IOCTL[column], _SECOND_ARGUMENT, injections)
    for call in (_SOCKET, _SOCKETPAIR):
        code += _argument(call[column], _FIRST_ARGUMENT, _none_but(_FAMILIES, _EAFNOSUPPORT))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code)


_Line = tuple[int, int, int, int]  # operation, lines to skip if so, lines to skip if not, value


def _when(test: int, value: int, error: int) -> list[_Line]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, _ERROR | error)]


def _none_but(values: tuple[int, ...], error: int) -> list[_Line]:
    tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [*tests, (_RETURN, 0, 0, _ERROR | error)]


def _argument(number: int, offset: int, judged: list[_Line]) -> list[_Line]:
    """`judged` looks at an argument of one call and falls off its end where that may pass."""
    return [
        (_EQUAL, 0, len(judged) + 2, number),
        (_LOAD, 0, 0, offset),
        *judged,
        (_RETURN, 0, 0, _ALLOW),
    ]
