"""Small disks: file systems in memory, visible to the campaign and its children alone."""

import ctypes
import os
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000
MNT_DETACH = 2

libc = ctypes.CDLL(None, use_errno=True)


def enter_own_namespace() -> bool:
    """Returns whether small disks can be mounted from now on. Must be called before threads start."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS) != 0:
        # Without the right to mount: a user namespace of its own gives it, if the kernel allows one.
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    return libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0


def mount_small_disk(folder: Path, kilobytes: int) -> None:
    if libc.mount(b"none", bytes(folder), b"tmpfs", 0, f"size={kilobytes}k".encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {folder}")


def unmount(folder: Path) -> None:
    libc.umount2(bytes(folder), MNT_DETACH)
