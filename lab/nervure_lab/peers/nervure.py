"""Nervure itself, from this checkout: Python nodes under `nervure run`, and its link between two hosts."""

from __future__ import annotations

import array
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import LINK, PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain


class Nervure(Peer):
    name = "nervure"
    title = "Nervure"
    configurations = (
        Configuration(
            "default",
            "Python nodes under `nervure run`, `queue_size` of the case; otherwise the defaults.",
            "defaults",
        ),
        Configuration(
            "composed",
            "The same nodes as functions in one process and interpreter (`process` in the dataflow file).",
            "defaults",
            frozenset({PROCESS}),
        ),
        Configuration(
            "link",
            "`nervure link bench`, a Rust program, encrypted; QoS of the case, otherwise the defaults. The "
            "other peers of the link have Python endpoints unless their rows say otherwise, which costs "
            "them up to a few hundred microseconds a sample.",
            "defaults",
            frozenset({LINK}),
            {"encrypted": True, "language": "Rust"},
        ),
    )

    def prepare(self, toolchain: Toolchain) -> None:
        from nervure_lab.contract import Unavailable
        from nervure_lab.toolchain import IN_CHECKOUT, REPOSITORY_DIRECTORY

        if not IN_CHECKOUT:
            command = shutil.which("nervure")
            if command is None:
                raise Unavailable("not installed: pip install nervure")
            self._command, self._python = Path(command), Path(command).with_name("python")
            return
        self._python = REPOSITORY_DIRECTORY / ".venv" / "bin" / "python"
        if not self._python.exists():
            raise Unavailable("there is no .venv in the checkout; `make demo` makes it")
        # The one in .venv may be a debug build, which is slower by a multiple.
        self._command = toolchain.workspace_program("nervure-cli", "nervure")

    def versions(self) -> dict[str, str]:
        from nervure_lab.machine import source_version
        from nervure_lab.toolchain import python_versions

        return {"nervure": source_version(), **python_versions(self._python, ["numpy"])}

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _NervurePublisher(_node(), topic)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _NervureSubscriber(_node(), on_message)

    def launch(self, launch: Launch) -> None:
        if launch.configuration == "link":
            for endpoint in launch.endpoints:
                command = [sys.executable, "-m", __name__, str(self._command)]
                launch.spawn(endpoint, command)
            return
        function = f"{__name__}:run_composed" if launch.in_one_process else ""
        file = launch.write_dataflow(str(self._python), {"queue_size": launch.depth}, {}, function)
        launch.spawn_launcher(
            [self._command, "run", file],
            {
                "NERVURE_LOG_DIR": f"{launch.directory}/nervure-logs",
                "PATH": f"{self._python.parent}:/usr/bin:/bin",
                "VIRTUAL_ENV": str(self._python.parent.parent),
            },
        )


def run_composed(node: Any) -> None:
    """The function of a node that shares its process: the endpoint with the role of the first argument."""
    from nervure_lab.peer_endpoint import Endpoint, prepare_process

    prepare_process()
    _NODE.append(node)
    wiring = next(it for it in Wiring.all_from_environment() if it.role == sys.argv[1])
    endpoint = Endpoint(PEER, wiring, json.loads(os.environ["NERVURE_LAB_CASE"]))
    endpoint.open()
    endpoint.run()


_NODE: list[Any] = []
"""Each of the nodes in one process has globals of its own."""


def _node() -> Any:
    if not _NODE:
        from nervure import Node

        _NODE.append(Node())
    return _NODE[0]


class _NervurePublisher:
    def __init__(self, node: Any, topic: str) -> None:
        import numpy

        self._node = node
        self._topic = topic
        self._array: Callable[[Any], Any] = lambda source: numpy.frombuffer(source, numpy.uint8)

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        self._node.send(self._topic, self._array(source))


class _NervureSubscriber:
    def __init__(self, node: Any, on_message: OnMessage) -> None:
        self._node = node
        self._on_message = on_message

    def spin(self, timeout_seconds: float) -> None:
        event = self._node.next(timeout=timeout_seconds)
        if event is not None and event.type == "INPUT":
            self._on_message(event.numpy())


class LinkBench:
    """One end of `nervure link bench` in the place of an endpoint. It has no probes: the schedule begins when
    the receiver has opened the stream, and its due times are those of the program.
    """

    def __init__(self, command: str) -> None:
        from nervure_lab.peer_endpoint import Driver

        self._bench = [command, "link", "bench"]
        self._wiring = Wiring.from_environment()
        self._case = json.loads(os.environ["NERVURE_LAB_CASE"])
        self._driver = Driver(os.environ["NERVURE_LAB_RENDEZVOUS"])
        self._logs = Path(os.environ["NERVURE_LAB_LOGS"])
        self._messages = self._case["warmup"] + self._case["messages"]
        self._receptions = Path(self._wiring.directory) / "receptions"

    def run(self) -> None:
        from nervure_lab.peer_endpoint import now_nanos

        opening = now_nanos()
        keys = {end: self._public_key(end) for end in ("subscriber", "publisher")}
        address = f"{self._wiring.address}:{self._wiring.port}"
        role = self._wiring.role
        words = [*self._bench, "serve", "--listen", address, "--allow", keys["publisher"], "--once"]
        words += ["--receptions", str(self._receptions), "--key", self._key_file("subscriber"), "--json"]
        if role == "publisher":
            quality = f"keep_last:{self._wiring.depth}" if self._wiring.reliable else "best_effort:10"
            stream = f"size={self._wiring.payload_bytes},rate_hz={self._wiring.rate_hz},qos={quality}"
            stream += f",count={self._messages}"
            words = [
                *self._bench,
                "send",
                "--connect",
                address,
                "--peer",
                keys["subscriber"],
                "--stream",
                stream,
            ]
            words += [
                "--key",
                self._key_file("publisher"),
                "--json",
                "--drain",
                f"{self._case['drain_seconds']}s",
            ]
        else:
            self._program = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        hello = {"role": role, "index": 0, "pid": os.getpid(), "opening": opening, "opened": now_nanos()}
        self._driver.report({**hello, "probes": False})
        while (line := self._driver.line()) is not None:
            word = line.partition(" ")[0]
            if word == "start" and role == "publisher":
                code = subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode
                if code not in (0, 3):  # 3: finished, but samples were lost.
                    raise SystemExit(f"error: `nervure link bench send` ended with {code}")
                self._driver.report({"sent": True})
            elif word == "stop":
                if role == "subscriber":
                    # Waits for it if it has ended, so that its CPU time counts as that of this process.
                    self._program.poll()
                    self._report_receptions()
                self._driver.report({"stopped": True})
            elif word == "leave":
                if role == "subscriber":
                    self._program.kill()
                return

    def _key_file(self, end: str) -> str:
        return f"{self._wiring.directory}/{end}.key"

    def _public_key(self, end: str) -> str:
        """Generates the key if needed. Both ends ask for both, and the file is made by the first."""
        import fcntl

        with open(self._key_file(end) + ".lock", "w") as lock:  # noqa: PTH123
            fcntl.flock(lock, fcntl.LOCK_EX)
            words = [self._bench[0], "link", "key", self._key_file(end)]
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def _report_receptions(self) -> None:
        """Writes the logs of both ends: every sample was due at its place in the schedule."""
        received = array.array("q")
        first_due = None
        if self._receptions.exists():
            for line in self._receptions.read_text().splitlines():
                fields = line.split()
                if len(fields) == 4:
                    number, due, at = int(fields[1]), int(fields[2]), int(fields[3])
                    first_due = (
                        due - int(number * 1e9 / self._wiring.rate_hz) if first_due is None else first_due
                    )
                    received.extend((number, 0, due, due, at, at))
        sent = array.array("q")
        for number in range(self._messages):
            due = (first_due or 0) + int(number * 1e9 / self._wiring.rate_hz)
            sent.extend((number, due, due, due, due))
        with (self._logs / "receptions-subscriber-0.log").open("wb") as file:
            received.tofile(file)
        with (self._logs / "publications-publisher-0.log").open("wb") as file:
            sent.tofile(file)
        self._driver.report({"received": True, "wrong": 0})


PEER = Nervure()

if __name__ == "__main__":
    LinkBench(sys.argv[1]).run()
