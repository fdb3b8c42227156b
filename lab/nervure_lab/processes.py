"""Trees of processes as /proc shows them, and processes that end with the session."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SCHEDULER_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel: user and system time of all threads."""


@dataclass
class SeenProcess:
    """One process as it was last seen; CPU time since it was first sampled."""

    pid: int
    command: str
    start_ticks: int
    first_cpu_seconds: float
    cpu_seconds: float = 0.0
    total_cpu_seconds: float = 0.0
    """Since its start, with the children that it has waited for."""
    rss_bytes: int = 0
    max_rss_bytes: int = 0
    threads: int = 0
    voluntary_context_switches: int = 0
    involuntary_context_switches: int = 0
    ended: bool = False
    """Whether the last sample did not find it."""
    label: str = ""
    """Value of the environment variable that the tree reads."""


class Processes:
    """Foreground processes of a session, which any thread can end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self.ended = False

    def run(self, words: list[str], environment: dict[str, str]) -> tuple[int, str]:
        """Returns the exit code and the text on standard error."""
        with self._lock:
            if self.ended:
                return (130, "")
            process = subprocess.Popen(
                words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self._running.add(process)
        try:
            _, text = process.communicate()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        return (process.returncode, text)

    def end_all(self) -> None:
        with self._lock:
            self.ended = True
            for process in self._running:
                process.send_signal(signal.SIGINT)


class ProcessTree:
    """The processes that were spawned, and all their descendants."""

    def __init__(self, variable: str = "") -> None:
        self._variable = variable
        """Environment variable that labels a process and its descendants."""
        self.seen: dict[int, SeenProcess] = {}
        self._roots: list[int] = []

    def add_root(self, pid: int) -> None:
        self._roots.append(pid)

    def sample(self) -> None:
        """Samples every process of the tree. Orphans stay in it once they have been seen."""
        for process in self.seen.values():
            process.ended = True
        pending = [*self._roots, *self.seen]
        visited: set[int] = set()
        while pending:
            pid = pending.pop()
            if pid in visited:
                continue
            visited.add(pid)
            self._sample_one(pid)
            pending += _children(pid)

    def kill_survivors(self) -> None:
        """Kills the processes that still run, unless the id now belongs to another process."""
        for process in self.seen.values():
            stat = _stat(process.pid)
            if stat is not None and stat.start_ticks == process.start_ticks and stat.state != "Z":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def _sample_one(self, pid: int) -> None:
        stat = _stat(pid)
        if stat is None or stat.state == "Z":
            return
        known = self.seen.get(pid)
        if known is None or known.start_ticks != stat.start_ticks:
            known = SeenProcess(pid, "", stat.start_ticks, stat.cpu_seconds)
            self.seen[pid] = known
        # Empty while a program is being started.
        known.command = _text(pid, "cmdline")[:200] or known.command
        if self._variable and not known.label:
            known.label = _variable(_text(pid, "environ", "\n"), self._variable)
        known.ended = False
        known.cpu_seconds = stat.cpu_seconds - known.first_cpu_seconds
        known.total_cpu_seconds = stat.cpu_seconds + stat.children_cpu_seconds
        status = _status(Path(f"/proc/{pid}/status"))
        known.rss_bytes = status.get("VmRSS", 0) * 1024
        known.max_rss_bytes = status.get("VmHWM", 0) * 1024
        known.threads = status.get("Threads", 0)
        switches = _context_switches(pid)
        known.voluntary_context_switches = switches["voluntary_ctxt_switches"]
        known.involuntary_context_switches = switches["nonvoluntary_ctxt_switches"]


def cpu_seconds(pid: int) -> float:
    """The user and system time of all threads so far; raises ``ProcessLookupError`` without the process."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(f"there is no process {pid}")
    return stat.cpu_seconds


@dataclass
class _Stat:
    state: str
    cpu_seconds: float
    children_cpu_seconds: float
    start_ticks: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the name in parentheses and may hold anything; proc(5) numbers the next one 3.
    fields = text.rpartition(")")[2].split()
    own, children = (int(fields[11]) + int(fields[12])), (int(fields[13]) + int(fields[14]))
    exact = _cpu_clock(pid)
    own_seconds = own / _TICKS_PER_SECOND if exact is None else exact
    return _Stat(fields[0], own_seconds, children / _TICKS_PER_SECOND, int(fields[19]))


def _cpu_clock(pid: int) -> float | None:
    """The CPU clock of a process, clock_getcpuclockid(3): nanoseconds, where /proc counts ticks of 10 ms."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)
    return None


def _text(pid: int, name: str, separator: str = " ") -> str:
    """A file of zero-terminated strings; empty if the process has gone."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
        return text.replace("\0", separator).strip()
    return ""


def _variable(environment: str, name: str) -> str:
    found = (line for line in environment.splitlines() if line.startswith(f"{name}="))
    return next(found, "").partition("=")[2]


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += [int(child) for child in (thread / "children").read_text().split()]
    return children


def _context_switches(pid: int) -> dict[str, int]:
    """Summed over the threads: the file of the process counts its main thread only."""
    sums = {"voluntary_ctxt_switches": 0, "nonvoluntary_ctxt_switches": 0}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            numbers = _status(thread / "status")
            for name in sums:
                sums[name] += numbers.get(name, 0)
    return sums


def _status(path: Path) -> dict[str, int]:
    """The numbers of a status file of /proc; empty if the process has gone."""
    numbers: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            first = value.split()[:1]
            if first and first[0].isdigit():
                numbers[name] = int(first[0])
    return numbers
