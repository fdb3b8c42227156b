"""Runs one case: starts the endpoints, drives them through probe, start and stop, and collects their logs.

A failure of the peer is a result (``failed``, ``hung``), not an exception.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nervure_lab import bulk_tcp
from nervure_lab.children import Children
from nervure_lab.comparison.case import ADDRESS_OF_FIRST_HOST, Case
from nervure_lab.contract import Unavailable
from nervure_lab.peer import LINK, PROCESS, Peer, Wiring
from nervure_lab.rendezvous import Expired, Failed, Name, Rendezvous
from nervure_lab.reports import last_summary
from nervure_lab.toolchain import try_emulator

START_SECONDS = 30.0
"""Limit of the time from the first process to the last hello."""
DISCOVERY_SECONDS = 10.0
"""Limit of the time in which every subscriber has to receive a probe; the run starts nevertheless."""
BEFORE_FIRST_SECONDS = 0.3
BLOCKED_SECONDS = 30.0
"""Time after the end of the schedule at which a publisher counts as hung."""
STOP_SECONDS = 10.0
LEAVE_SECONDS = 3.0
FIRST_NEIGHBOUR_PORT = 9000
SAMPLING_SECONDS = 0.5
_LABEL = "NERVURE_LAB_ENDPOINT"
"""Environment variable with the name of the endpoint, which its descendants inherit."""
_PROGRAMS_OF_THE_LAB = ("nervure-linkemu", "sh", "env", "exe")
"""The emulated link and its programs in the hosts."""


@dataclass
class Outcome:
    outcome: str = "ok"
    reason: str = ""
    discovery: dict[str, float] = field(default_factory=dict)
    """Milliseconds from the opening of the later end to the first probe, by publisher and subscriber."""
    discovered: bool = True
    start_nanos: int = 0
    """Due time of the first message."""
    logs: dict[str, bytes] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    window_seconds: float = 0.0
    wrong: int = 0
    link: dict[str, Any] | None = None
    """The counters of the emulated link at its end."""
    neighbours_mbit: list[float] = field(default_factory=list)
    """Goodput of each neighbour's TCP flow during the schedule."""

    def record(self) -> dict[str, Any]:
        entry = asdict(self)
        del entry["logs"]
        return entry


class Launch:
    """The context in which a peer starts the endpoints of a run."""

    def __init__(self, session: Session, configuration: str) -> None:
        self._session = session
        self.configuration = configuration
        case = session.case
        self.endpoints = case.endpoints
        self.in_one_process = case.place == PROCESS
        self.directory = str(session.directory)
        self.run_name = session.directory.name
        self.payload_bytes, self.depth = case.payload_bytes, case.depth
        self.subscribers = case.subscribers
        self.settings_file = session.settings_file

    def python_command(self, python: Path) -> list[str]:
        return [str(python), "-m", "nervure_lab.peer_endpoint", self._session.peer.__class__.__module__]

    def spawn(
        self, endpoint: Name, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        self._session.spawn(endpoint, command, {**self.environment(endpoint), **(environment or {})})

    def spawn_all(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Starts a process for each endpoint, or one for all where the case is of one process."""
        for endpoint in self.endpoints[:1] if self.in_one_process else self.endpoints:
            self.spawn(endpoint, command, environment)

    def spawn_launcher(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        self._session.spawn_launcher(command, {"PYTHONPATH": str(self._session.packages), **environment})

    def environment(self, endpoint: Name) -> dict[str, str]:
        return self._session.environment(endpoint, self.configuration)

    def write_dataflow(
        self,
        program: str,
        input_keys: dict[str, Any],
        node_keys: dict[str, Any],
        function: str = "",
        arguments: str | None = None,
    ) -> str:
        """Writes a dataflow of the endpoints with these keys of every input and of every sender. The program
        is the interpreter of the endpoint in Python, or has arguments of its own. With a function
        (`module:function`, called with the role as argument) all are in one process.
        """
        if arguments is None:
            arguments = f"-m nervure_lab.peer_endpoint {self._session.peer.__class__.__module__}"
        nodes = []
        for role, index in self.endpoints:
            node: dict[str, Any] = {
                "id": f"{role}-{index}",
                "path": program,
                "args": arguments,
                "env": self.environment((role, index)),
            }
            if function:
                node |= {"path": function, "args": role, "process": "lab"}
            outputs, sources = _edges(self.endpoints, role)
            if outputs:
                node |= {"outputs": outputs, **node_keys}
            if sources:
                node["inputs"] = {
                    f"in-{number}": {"source": source, **input_keys} for number, source in enumerate(sources)
                }
            nodes.append(node)
        file = self._session.directory / "dataflow.yml"
        file.write_text(json.dumps({"nodes": nodes}))  # JSON is YAML.
        return str(file)


def _edges(endpoints: Sequence[Name], role: str) -> tuple[list[str], list[str]]:
    """Returns the outputs of a role and the sources of its inputs."""
    publishers = [f"publisher-{index}/data" for name, index in endpoints if name == "publisher"]
    edges: dict[str, tuple[list[str], list[str]]] = {
        "publisher": (["data"], []),
        "subscriber": ([], publishers),
        "client": (["ping"], ["echo-0/pong"]),
        "echo": (["pong"], ["client-0/ping"]),
    }
    return edges[role]


class Session:
    def __init__(
        self,
        peer: Peer,
        case: Case,
        seed: int,
        emulator: Path | None,
        settings_file: str = "",
        *,
        operation: str = "",
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.peer = peer
        self.case = case
        self._is_interrupted = is_interrupted
        self.settings_file = settings_file
        self._operation = operation
        """Operation of subscribers in Python on each payload, as ``module:function``."""
        self.directory = Path(tempfile.mkdtemp(prefix="nervure-lab-"))
        self.packages = self.directory / "packages"
        self._link_packages()
        self._seed = seed
        self._emulator = emulator
        self._children = Children(self.directory, _LABEL)
        self._rendezvous = Rendezvous(self.directory / "rendezvous", len(case.endpoints), self._children)
        self._endpoints = self._rendezvous.ends
        self._on_link: dict[Name, str] = {}
        self._port = _free_port() if case.place != LINK else 7447
        self._domain = 1 + int.from_bytes(os.urandom(2), "big") % 200 if case.place != LINK else 0
        self._sampled_at = 0.0
        self._cpu_before: dict[int, float] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._children.end()
        self._rendezvous.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, endpoint: Name, configuration: str) -> dict[str, str]:
        """In one process, the environment of all its endpoints."""
        keys = ("rate_hz", "messages", "warmup", "reads", "work_millis", "ends_on_time", "drain_seconds")
        case = {key: getattr(self.case, key) for key in keys} | {"operation": self._operation}
        found = {
            "NERVURE_LAB_WIRING": self._wiring(endpoint, configuration),
            "NERVURE_LAB_CASE": json.dumps(case),
            _LABEL: f"{endpoint[0]}-{endpoint[1]}",
            "NERVURE_LAB_RENDEZVOUS": str(self.directory / "rendezvous"),
            "NERVURE_LAB_LOGS": str(self.directory),
            "PYTHONPATH": str(self.packages),
        }
        if self.case.place == PROCESS:
            first, other = self.case.endpoints
            found["NERVURE_LAB_WIRING"] = self._wiring(first, configuration)
            found["NERVURE_LAB_OTHER_WIRING"] = self._wiring(other, configuration)
            found[_LABEL] = "process"
        return found

    def _wiring(self, endpoint: Name, configuration: str) -> str:
        case = self.case
        role, index = endpoint
        echo = case.pattern == "echo"
        wiring = Wiring(
            run_name=self.directory.name,
            directory=str(self.directory),
            place=case.place,
            configuration=configuration,
            role=role,
            index=index,
            publishers=1 if echo else case.publishers,
            subscribers=1 if echo else case.subscribers,
            payload_bytes=case.payload_bytes,
            rate_hz=case.rate_hz,
            reliable=case.reliable,
            depth=case.depth,
            address=ADDRESS_OF_FIRST_HOST[case.place],
            port=self._port,
            domain=self._domain,
            keep_all=case.keep_all,
            settings_file=self.settings_file,
            message=case.message,
        )
        return json.dumps(asdict(wiring))

    def _link_packages(self) -> None:
        """Makes the lab, and the package of a peer from elsewhere, importable for the endpoints, and nothing
        else of this environment.
        """
        self.packages.mkdir()
        for name in {"nervure_lab", type(self.peer).__module__.partition(".")[0]}:
            module = sys.modules[name]
            source = Path(module.__path__[0] if hasattr(module, "__path__") else str(module.__file__))
            (self.packages / source.name).symlink_to(source.absolute())

    def spawn(self, endpoint: Name, command: Sequence[str | Path], environment: dict[str, str]) -> None:
        if self.case.place != LINK:
            self._children.spawn(f"{endpoint[0]}-{endpoint[1]}", command, environment)
            return
        settings = [f"{name}={value}" for name, value in environment.items()]
        self._on_link[endpoint] = "exec " + shlex.join(["env", *settings, *map(str, command)])

    def spawn_launcher(self, command: Sequence[str | Path], environment: dict[str, str]) -> None:
        self._children.spawn("launcher", command, environment)

    def measure(self, configuration: str) -> Outcome:
        launch = Launch(self, configuration)
        found = Outcome()
        try:
            self.peer.launch(launch)
            if self.case.place == LINK:
                self._start_link()
            self._drive(found)
            self._read_logs(found)
            found.neighbours_mbit = self._neighbours_mbit(found.start_nanos)
            if not found.discovered and not any(
                log for name, log in found.logs.items() if name.startswith("receptions")
            ):
                found.outcome = "unconnected"
                found.reason = f"nothing arrived within {DISCOVERY_SECONDS:.0f} s, nor during the run"
        except _Hung as error:
            found.outcome, found.reason = "hung", str(error)
        except (Failed, Unavailable) as error:
            found.outcome, found.reason = "failed", str(error)
        finally:
            self._children.end()
            self.peer.clean(launch)
        found.link = last_summary(self.directory / "link.json")
        return found

    def _start_link(self) -> None:
        assert self._emulator is not None
        # An outage is set when the run starts: its time depends on how long the endpoints take to open.
        receivers = [script for (role, _), script in self._on_link.items() if role == "subscriber"]
        senders = [script for (role, _), script in self._on_link.items() if role == "publisher"]
        neighbours = [self._neighbour("send", number) for number in range(self.case.neighbours)]
        behind = [self._neighbour("receive", number) for number in range(self.case.neighbours)]
        first_host = "".join(f"( {it} ) & " for it in behind) + _together(receivers)
        options = ["--until", "a"] if neighbours else []  # Theirs do not end by themselves.
        words = self.link_command(self._emulator, options, first_host, [*senders, *neighbours])
        self._link_started = time.monotonic()
        self._children.spawn("link", words, {})

    def link_command(
        self, emulator: Path, options: Sequence[str], first_host: str, other_hosts: Sequence[str]
    ) -> list[str | Path]:
        """The command that runs a shell script in each host of the link."""
        words: list[str | Path] = [emulator, "run", *self.emulator_options()]
        words += ["--json", self.directory / "link.json"]
        words += [*options, "--", "sh", "-c", first_host]
        for script in other_hosts:
            words += ["---", "sh", "-c", script]
        return words

    def emulator_options(self) -> list[str]:
        return self.case.emulator_options(self._seed, self._outage_at)

    def _neighbour(self, end: str, number: int) -> str:
        environment = {"NERVURE_LAB_RECEPTIONS": str(self._neighbour_log(number)), _LABEL: "lab"}
        program = [sys.executable, str(Path(bulk_tcp.__file__)), end, str(FIRST_NEIGHBOUR_PORT + number)]
        return "exec " + shlex.join(["env", *(f"{name}={it}" for name, it in environment.items()), *program])

    def _neighbour_log(self, number: int) -> Path:
        return self.directory / f"neighbour-{number}"

    def _neighbours_mbit(self, start_nanos: int) -> list[float]:
        end_nanos = start_nanos + int(self.case.sending_seconds * 1e9)
        files = [self._neighbour_log(number) for number in range(self.case.neighbours)]
        return [
            bulk_tcp.goodput_mbit(file.read_text() if file.exists() else "", start_nanos, end_nanos)
            for file in files
        ]

    @property
    def _outage_at(self) -> float | None:
        """Seconds from the start of the emulator; the schedule starts at a fixed time after it."""
        return FIXED_START_SECONDS + self.case.outage[0] if self.case.outage else None

    def _drive(self, found: Outcome) -> None:
        expected = set(self.case.endpoints)
        self._wait(lambda: expected <= set(self._endpoints), START_SECONDS, "say hello")
        self._probe(found)
        publishers = [end for end in self._endpoints.values() if end.role in ("publisher", "client")]
        receivers = [end for end in self._endpoints.values() if end.role in ("subscriber", "client")]
        if self.case.outage:
            self._wait_for_fixed_start()
        found.start_nanos = time.monotonic_ns() + int(BEFORE_FIRST_SECONDS * 1e9)
        began = time.monotonic()
        self._sample()
        self._cpu_before = {pid: seen.total_cpu_seconds for pid, seen in self._children.tree.seen.items()}
        self._rendezvous.send(f"start {found.start_nanos}", publishers)
        limit = self.case.sending_seconds + BLOCKED_SECONDS
        self._wait(lambda: all(end.has("sent") for end in publishers), limit, "end sending", "sent")
        with contextlib.suppress(Expired):
            self._rendezvous.wait(
                lambda: all(end.has("received") for end in receivers),
                self.case.drain_seconds,
                self._meanwhile,
            )
        self._rendezvous.send("stop", list(self._endpoints.values()))
        everything = list(self._endpoints.values())
        self._wait(lambda: all(end.has("stopped") for end in everything), STOP_SECONDS, "stop", "stopped")
        self._sample()
        found.window_seconds = time.monotonic() - began
        found.processes = self._processes()
        found.wrong = sum(int(end.records.get("received", {}).get("wrong", 0)) for end in receivers)
        self._rendezvous.send("leave", everything)
        self._children.wait_for_leave(LEAVE_SECONDS)

    def _wait_for_fixed_start(self) -> None:
        left = FIXED_START_SECONDS - BEFORE_FIRST_SECONDS - (time.monotonic() - self._link_started)
        if left < 0:
            raise Failed(f"the endpoints took longer than {FIXED_START_SECONDS:.0f} s to be ready")
        time.sleep(left)

    def _probe(self, found: Outcome) -> None:
        senders = [end for end in self._endpoints.values() if end.role in ("publisher", "client")]
        receivers = [end for end in self._endpoints.values() if end.role in ("subscriber", "client")]
        if not all(end.hello.get("probes", True) for end in self._endpoints.values()):
            return
        self._rendezvous.send("probe", senders)
        try:
            self._rendezvous.wait(
                lambda: all(len(end.probes) == len(senders) for end in receivers),
                DISCOVERY_SECONDS,
                self._meanwhile,
            )
        except Expired:
            found.discovered = False
        opened = {(end.role, end.index): end.hello["opening"] for end in self._endpoints.values()}
        for receiver in receivers:
            for index, received in receiver.probes.items():
                other = ("echo", 0) if receiver.role == "client" else ("publisher", index)
                later = max(opened[receiver.role, receiver.index], opened[other])
                found.discovery[f"{other[0]}-{other[1]} {receiver.role}-{receiver.index}"] = (
                    received - later
                ) / 1e6

    def _wait(self, is_done: Callable[[], bool], timeout_seconds: float, what: str, key: str = "") -> None:
        try:
            self._rendezvous.wait(is_done, timeout_seconds, self._meanwhile)
        except Expired:
            raise _Hung(f"{self._missing(key)} did not {what} within {timeout_seconds:.0f} s") from None

    def _meanwhile(self) -> None:
        if self._is_interrupted():
            raise Failed("interrupted")
        if time.monotonic() - self._sampled_at > SAMPLING_SECONDS:
            self._sample()

    def _missing(self, key: str) -> str:
        done = {name for name, end in self._endpoints.items() if not key or end.has(key)}
        waiting = set(self.case.endpoints) - done
        if key == "sent":
            waiting = {name for name in waiting if name[0] in ("publisher", "client")}
        return ", ".join(f"{role}-{index}" for role, index in sorted(waiting))

    def _sample(self) -> None:
        self._children.tree.sample()
        self._sampled_at = time.monotonic()

    def _processes(self) -> list[dict[str, Any]]:
        """Every process of the system under test; those of the lab itself are named so."""
        found = []
        for seen in self._children.tree.seen.values():
            program = Path(seen.command.split(" ")[0]).name
            of_lab = program in _PROGRAMS_OF_THE_LAB and not seen.label
            found.append(
                {
                    "role": seen.label or ("lab" if of_lab else "daemon"),
                    "command": seen.command,
                    # The parent counts the time of a child that has ended.
                    "cpu_seconds": 0.0
                    if seen.ended
                    else round(seen.total_cpu_seconds - self._cpu_before.get(seen.pid, 0.0), 6),
                    "max_rss_bytes": seen.max_rss_bytes,
                    "threads": seen.threads,
                    "voluntary_context_switches": seen.voluntary_context_switches,
                    "involuntary_context_switches": seen.involuntary_context_switches,
                }
            )
        return sorted(found, key=lambda entry: str(entry["role"]))

    def _read_logs(self, found: Outcome) -> None:
        for file in sorted(self.directory.glob("*s-*-[0-9]*.log")):
            if file.name.startswith(("publications-", "receptions-")):
                found.logs[file.stem] = file.read_bytes()


FIXED_START_SECONDS = 8.0
"""With an outage: time from the start of the emulator to the first message, so that the outage is at a known
place of the schedule."""


class _Hung(Exception):
    """Endpoints did not answer in time; the message names them."""


def _together(scripts: list[str]) -> str:
    """A shell script that runs these scripts concurrently and waits for them alone."""
    if len(scripts) == 1:
        return scripts[0]
    return "".join(f'( {script} ) & all="$all $!"; ' for script in scripts) + "wait $all"


def _free_port() -> int:
    """A port of loopback that was free together with the next one."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port
    raise Unavailable("no two free ports in sequence on the loopback")


def find_emulator() -> Path:
    """Returns the emulator of the checkout's environment; raises ``Unavailable`` with what to do."""
    emulator = Path(sys.prefix) / "bin" / "nervure-linkemu"
    if not emulator.exists():
        other = shutil.which("nervure-linkemu")
        if other is None:
            raise Unavailable("there is no `nervure-linkemu`; `make linkemu` builds it")
        emulator = Path(other)
    try_emulator(emulator)
    return emulator
