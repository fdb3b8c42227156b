"""Processes in /proc: their ends, children, descriptors and mappings."""

import contextlib
import ctypes
import os
import re
import select
import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
# Parts of names that differ between processes.
NUMBERS = re.compile(r"\[\d+\]|\d+")


def adopt_orphans() -> None:
    """Makes this process the subreaper: leftovers of `nervure run` become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Process:
    """A process by its pidfd, which a reused process id cannot confuse."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self.pidfd: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self.pidfd = None

    def signal(self, number: signal.Signals) -> bool:
        """False when it has ended."""
        if self.pidfd is None:
            return False
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def has_ended(self) -> bool:
        return self.pidfd is None or bool(select.select([self.pidfd], [], [], 0)[0])

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    """The children of all threads of a process; none when it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def reap_orphans(known: int) -> list[int]:
    """Reaps adopted children, except the process `known`; returns those that still live."""
    for child in children(os.getpid()):
        if child != known:
            try:
                os.waitpid(child, os.WNOHANG)
            except ChildProcessError:
                continue
    return [child for child in children(os.getpid()) if child != known]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"


def descriptors(pid: int) -> Counter[str]:
    """Descriptors of a process, by kind, without log files, which are opened at their first line."""
    kinds: Counter[str] = Counter()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if not target.endswith(".jsonl"):
            kinds[NUMBERS.sub("", target)] += 1
    return kinds


def mappings(pid: int) -> Counter[str]:
    """Its mappings of shared memory, by kind."""
    kinds: Counter[str] = Counter()
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/memfd:"):
            kinds[fields[5]] += 1
    return kinds


def own_bytes(pid: int) -> int | None:
    """Anonymous private memory of a process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def segment_bytes(pids: Iterable[int]) -> dict[int, int]:
    """Sizes of the segments that these processes map, by inode, so that each counts once."""
    segments: dict[int, int] = {}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for line in lines:
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/memfd:nervure-segment"):
                begin, end = (int(address, 16) for address in fields[0].split("-"))
                segments[int(fields[4])] = max(segments.get(int(fields[4]), 0), end - begin)
    return segments


def wait_until(patience: float, holds) -> bool:
    """Whether a condition becomes true in time. Polls: only for conditions without an event."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
