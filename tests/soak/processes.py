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
# Names without what differs from process to process.
NUMBERS = re.compile(r"\[\d+\]|\d+")


def adopt_orphans() -> None:
    """Whatever `nervure run` leaves behind becomes a child of this process, and is seen."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Process:
    """A process by its pidfd: no other can be taken for it."""

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
    """Takes in adopted children that ended, but for the process `known`; returns those that still live."""
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
    """What its descriptors are, by kind. Log files are left out: each is opened at its first line."""
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
    """Memory that it has for itself: neither files nor what it shares."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def segment_bytes(pids: Iterable[int]) -> dict[int, int]:
    """Segments that any of these processes maps, by their inode: each counts once."""
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
    """Whether a condition comes to hold in time. It is polled: only for conditions without an event."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
