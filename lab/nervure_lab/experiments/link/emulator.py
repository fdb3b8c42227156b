"""Runs one case of programs that report by themselves: the emulator, the programs in its hosts, and the
collected reports.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nervure_lab import bulk_tcp
from nervure_lab.experiments.link import veth
from nervure_lab.experiments.link.case import DRAIN_SECONDS, JOIN_SECONDS, PORT, LinkCase
from nervure_lab.experiments.link.ticker import watched
from nervure_lab.processes import Processes
from nervure_lab.reports import last_summary
from nervure_lab.toolchain import LAB_DIRECTORY, Toolchain, try_emulator

START_SECONDS = 30.0
"""Limit of the time from the start of the emulator to the first sample."""
CATCH_UP_SECONDS = 30.0
"""Limit of the time that a sender that keeps all takes after the end of the schedule."""
CONNECT_SECONDS_AT_MOST = 1.5
"""Limit of the mean time of one of many connections."""


def build_emulator(toolchain: Toolchain) -> Path:
    """Returns the emulator's release binary; raises ``Unavailable`` where it cannot be built or run."""
    emulator = toolchain.workspace_program("nervure-linkemu", "nervure-linkemu")
    try_emulator(emulator)
    return emulator


def run_programs(
    emulator: Path, commands: CommandsOf, case: LinkCase, seed: int, processes: Processes
) -> dict[str, Any]:
    """Runs the programs of a case once. A failed run is a result too."""
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as name:
        directory = Path(name)
        hosts = _hosts(commands, case, directory)
        if case.veth:
            words = veth.command(_script(hosts[0]), _script(hosts[1]))
        else:
            words = [emulator, "run", *case.emulator_options(seed), "--congestion-control=cubic"]
            words += ["--json", directory / "emulator.json"]
            words += ["--stop-after", str(_limit_seconds(case)), "--until", "b" if case.connects else "a"]
            for number, programs in enumerate(hosts):
                words += ["---" if number else "--", "sh", "-c", _script(programs)]
        with watched(directory) as machine:
            environment = os.environ | {"PYTHONPATH": str(LAB_DIRECTORY)}
            exit_code, errors = processes.run([str(word) for word in words], environment)
        link = last_summary(directory / "emulator.json")
        flows = [Flow(directory, number) for number in range(case.robots + (case.beside == "same-later"))]
        return {
            "case": asdict(case),
            "exit_code": exit_code,
            "stderr": errors[-2000:],
            "machine": machine.figures(link["start_monotonic_nanos"] if link else None),
            "link": link,
            "flows": [_found(flow, link) for flow in flows],
            "beside": _bulk_progress(Flow(directory, 1), link) if "cubic" in case.beside else None,
        }


@dataclass(frozen=True)
class Flow:
    """One sender and one receiver of a run: its number and the files that they write."""

    directory: Path
    number: int = 0

    @property
    def port(self) -> int:
        return PORT + self.number

    @property
    def receiver_report(self) -> Path:
        """JSON lines, of which the last one counts."""
        return self.directory / f"receiver-{self.number}.json"

    @property
    def sender_report(self) -> Path:
        return self.directory / f"sender-{self.number}.json"

    @property
    def receptions(self) -> Path:
        """A line a sample: stream, number, due time and reception, in nanoseconds of CLOCK_MONOTONIC."""
        return self.directory / f"receptions-{self.number}"


@dataclass(frozen=True)
class Commands:
    """The programs of the two hosts, which print their reports. ``NERVURE_LAB_RECEPTIONS`` names the file of
    the receptions.
    """

    receiver: list[str]
    sender: list[str]


CommandsOf = Callable[[LinkCase, Flow], Commands]


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
        return f"{wait}exec env NERVURE_LAB_RECEPTIONS={receptions} {shlex.join(self.command)} >{report}"


def _hosts(commands: CommandsOf, case: LinkCase, directory: Path) -> list[list[_Program]]:
    """Returns the programs of each host, those of the receiver first."""
    robots = [Flow(directory, number) for number in range(case.robots)]
    receivers, senders = [], []
    for flow in robots:
        receiver, sender = _ends(commands(case, flow), flow, case.beside == "cubic-first")
        receivers.append(receiver)
        senders.append([sender])
    other = Flow(directory, 1)
    if case.beside == "same-later":
        receiver, sender = _ends(commands(case, other), other, later=True)
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


def _found(flow: Flow, link: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the reports of both ends of a flow, and every reception."""
    found: dict[str, Any] = {
        "receiver": last_summary(flow.receiver_report),
        "sender": last_summary(flow.sender_report),
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
