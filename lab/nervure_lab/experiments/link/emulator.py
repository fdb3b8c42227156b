"""Runs one case: the emulator, the programs in its hosts, the rendezvous, and the collected reports."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nervure_lab import bulk_tcp
from nervure_lab.experiments.link.case import JOIN_SECONDS, Commands, Flow, LinkAdapter, LinkCase
from nervure_lab.experiments.link.ticker import ProcessorSeconds, merged_stops, ticking
from nervure_lab.processes import Processes
from nervure_lab.toolchain import LAB_DIRECTORY, Toolchain, try_emulator

START_SECONDS = 30.0
"""Limit of the time from the start of the emulator to the first sample."""
CONNECT_SECONDS = 1.0
"""Time to connect, from the readiness of both ends to the first sample."""
DRAIN_SECONDS = 3.0
CATCH_UP_SECONDS = 30.0
"""Limit of the time that a sender that keeps all takes after the end of the schedule."""
CONNECT_SECONDS_AT_MOST = 1.5
"""Limit of the mean time of one of many connections."""


def build_emulator(toolchain: Toolchain) -> Path:
    """Returns the emulator's release binary; raises ``Unavailable`` where it cannot be built or run."""
    emulator = toolchain.workspace_program("nervure-linkemu", "nervure-linkemu")
    try_emulator(emulator)
    return emulator


def run_case(
    emulator: Path, adapter: LinkAdapter, case: LinkCase, seed: int, processes: Processes
) -> dict[str, Any]:
    """Runs a case once. A failed run is a result too."""
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as name:
        directory = Path(name)
        environment = os.environ | {
            "NERVURE_LAB_CASE": json.dumps({**asdict(case), "rendezvous": str(directory / "rendezvous")}),
            "PYTHONPATH": str(LAB_DIRECTORY),
        }
        hosts = _hosts(adapter, case, directory)
        if case.veth:
            words = [sys.executable, "-m", "nervure_lab.experiments.link.veth", *map(_script, hosts)]
        else:
            words = [str(emulator), "run", *case.emulator_options(seed)]
            words += [f"--congestion-control={adapter.congestion_control}"]
            words += ["--json", str(directory / "emulator.json")]
            words += ["--stop-after", str(_limit_seconds(case)), "--until", "b" if case.connects else "a"]
            for number, programs in enumerate(hosts):
                words += ["---" if number else "--", "sh", "-c", _script(programs)]
        before = ProcessorSeconds.now()
        with _rendezvous(directory / "rendezvous"), ticking(directory, environment) as tickers:
            exit_code, errors = processes.run(words, environment)
        after = ProcessorSeconds.now()
        used = {
            "stolen_s": round(after.stolen - before.stolen, 2),
            "busy_share": round((after.busy - before.busy) / max(after.total - before.total, 0.01), 3),
        }
        link = last_line(directory / "emulator.json")
        flows = [Flow(directory, number) for number in range(case.robots + (case.beside == "same-later"))]
        return {
            "case": asdict(case),
            "exit_code": exit_code,
            "stderr": errors[-2000:],
            "machine": _machine(tickers, link) | used,
            "link": link,
            "flows": [_found(flow, link) for flow in flows],
            "beside": _bulk_progress(Flow(directory, 1), link) if "cubic" in case.beside else None,
        }


@dataclass(frozen=True)
class _Program:
    command: list[str]
    report: Path
    receptions: Path
    after_seconds: float = 0.0
    awaited: bool = True
    """Whether its host waits for it to end."""

    @property
    def script(self) -> str:
        report, receptions = shlex.quote(str(self.report)), shlex.quote(str(self.receptions))
        wait = f"sleep {self.after_seconds}; " if self.after_seconds else ""
        environment = f"NERVURE_LAB_REPORT={report} NERVURE_LAB_RECEPTIONS={receptions}"
        return f"{wait}exec env {environment} {shlex.join(self.command)} >{report}"


def _hosts(adapter: LinkAdapter, case: LinkCase, directory: Path) -> list[list[_Program]]:
    """Returns the programs of each host, those of the receiver first."""
    robots = [Flow(directory, number) for number in range(case.robots)]
    receivers, senders = [], []
    for flow in robots:
        receiver, sender = _ends(adapter.commands(case, flow), flow, case.beside == "cubic-first")
        receivers.append(receiver)
        senders.append([sender])
    other = Flow(directory, 1)
    if case.beside == "same-later":
        receiver, sender = _ends(adapter.commands(case, other), other, later=True)
        receivers.append(receiver)
        senders[0].append(sender)
    elif case.beside:
        program = [sys.executable, str(Path(bulk_tcp.__file__))]
        bulk = Commands([*program, "receive", str(other.port)], [*program, "send", str(other.port)])
        receiver, sender = _ends(bulk, other, case.beside == "cubic-later", awaited=False)
        receivers.append(receiver)
        senders[0].append(sender)
    return [receivers, *senders]


def _ends(commands: Commands, flow: Flow, later: bool, awaited: bool = True) -> tuple[_Program, _Program]:
    """Returns receiver and sender; only the sender of a later flow is delayed."""
    after = JOIN_SECONDS if later else 0.0
    return (
        _Program(commands.receiver, flow.receiver_report, flow.receptions, awaited=awaited),
        _Program(commands.sender, flow.sender_report, flow.receptions, after, awaited=awaited),
    )


def _script(programs: list[_Program]) -> str:
    """Returns a shell script that runs the programs concurrently."""
    if len(programs) == 1:
        return programs[0].script
    lines = []
    for program in programs:
        lines.append(f"( {program.script} ) & " + ('awaited="$awaited $!"; ' if program.awaited else ""))
    return "".join(lines) + "wait $awaited"


def _limit_seconds(case: LinkCase) -> float:
    if case.connects:
        return START_SECONDS + case.connects * CONNECT_SECONDS_AT_MOST
    seconds = START_SECONDS + case.sending_seconds + DRAIN_SECONDS
    return seconds + (JOIN_SECONDS if case.beside else 0.0) + (CATCH_UP_SECONDS if case.keep_all else 0.0)


def _machine(tickers: Iterable[Path], link: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the stops of the machine, in microseconds from the start of the emulator."""
    found = merged_stops(core for file in tickers if (core := last_line(file)))
    stops = found.pop("stops_nanos")
    start = link["start_monotonic_nanos"] if link else 0
    micros = [[(nanos - start) // 1000 for nanos in stop] for stop in stops]
    # The tickers start before the emulator.
    return found | ({"stops_micros": [stop for stop in micros if stop[0] > 0]} if link else {})


def _found(flow: Flow, link: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the reports of both ends of a flow, and every reception."""
    found: dict[str, Any] = {
        "receiver": last_line(flow.receiver_report),
        "sender": last_line(flow.sender_report),
    }
    if link is None:
        return found
    start = link["start_monotonic_nanos"]
    if flow.receptions.exists():
        # A killed receiver may leave an incomplete last line.
        lines = [line.split() for line in flow.receptions.read_text().splitlines()]
        found["receptions_micros"] = [
            [int(number), (int(due) - start) // 1000, (int(received) - start) // 1000]
            for _, number, due, received in (line for line in lines if len(line) == 4)
        ]
    if found["sender"] and "starts" in found["sender"]:
        starts = found["sender"].pop("starts")
        found["sender"]["starts_micros"] = [[(began - start) // 1000, code] for began, code in starts]
    return found


def _bulk_progress(flow: Flow, link: dict[str, Any] | None) -> list[list[int]]:
    """Returns pairs: microseconds from the start of the emulator, bytes that had arrived by then."""
    if link is None or not flow.receptions.exists():
        return []
    start = link["start_monotonic_nanos"]
    return [[(at - start) // 1000, total] for at, total in bulk_tcp.progress(flow.receptions.read_text())]


@contextlib.contextmanager
def _rendezvous(path: Path) -> Iterator[None]:
    """Sends the start time to both ends when both are ready."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(2)

    def serve() -> None:
        with contextlib.suppress(OSError):
            ends = [listener.accept()[0] for _ in range(2)]
            for end in ends:
                end.recv(100)
            start = time.monotonic_ns() + int(CONNECT_SECONDS * 1e9)
            for end in ends:
                end.sendall(f"{start}\n".encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Wakes a thread that waits in accept; closing the socket would not.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def last_line(path: Path) -> dict[str, Any] | None:
    """Returns the last line of JSON in a file that describes the whole run, or None."""
    if not path.exists():
        return None
    for line in reversed(path.read_text().splitlines()):
        with contextlib.suppress(json.JSONDecodeError):
            found: dict[str, Any] = json.loads(line)
            if found.get("kind") in (None, "summary"):
                return found
    return None
