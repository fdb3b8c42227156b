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

from nervure_lab.arrow_messages import header_of, outgoing
from nervure_lab.messages import BYTES, TITLES
from nervure_lab.peer import LINK, PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain


_OF_BYTES: dict[str, Any] = {
    "messages": frozenset({BYTES}),
    "without_types": "this endpoint sends bytes alone; `nervure-default` has types",
}


class Nervure(Peer):
    name = "nervure"
    title = "Nervure"
    messages = frozenset(TITLES)
    configurations = (
        Configuration(
            "default",
            "Python nodes under `nervure run`, `queue_size` of the case; otherwise the defaults.",
            "defaults",
        ),
        Configuration(
            "loan",
            "As `default`, but messages are written into loaned memory, as those of iceoryx2 are.",
            "defaults",
            values=_OF_BYTES | {"copies_in_send": False},
        ),
        Configuration(
            "rust",
            "As `loan`, with nodes in Rust.",
            "defaults",
            values=_OF_BYTES | {"copies_in_send": False, "language": "Rust"},
        ),
        Configuration(
            "cpp",
            "As `default`, with nodes in C++.",
            "defaults",
            values=_OF_BYTES | {"language": "C++"},
        ),
        Configuration(
            "cpp-loan",
            "As `loan`, with nodes in C++.",
            "defaults",
            values=_OF_BYTES | {"copies_in_send": False, "language": "C++"},
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

    def __init__(self) -> None:
        self._programs: dict[str, Path] = {}
        """By configuration: those of nodes that are not in Python."""

    def prepare(self, toolchain: Toolchain) -> None:
        from nervure_lab.contract import Unavailable
        from nervure_lab.toolchain import IN_CHECKOUT, REPOSITORY_DIRECTORY

        if not IN_CHECKOUT:
            command = shutil.which("nervure")
            if command is None:
                raise Unavailable("not installed: pip install the wheel of `make wheel`")
            self._command, self.python = Path(command), Path(command).with_name("python")
            return
        self.python = REPOSITORY_DIRECTORY / ".venv" / "bin" / "python"
        if not self.python.exists():
            raise Unavailable("there is no .venv in the checkout; `make demo` makes it")
        # The one in .venv may be a debug build, which is slower by a multiple.
        self._command = toolchain.workspace_program("nervure-cli", "nervure")

    def prepare_configuration(self, toolchain: Toolchain, configuration: str) -> None:
        if configuration == "rust":
            self._programs[configuration] = toolchain.rust_program("nervure-lab-nervure", "nervure-lab-peer")
        elif configuration in ("cpp", "cpp-loan"):
            self._programs[configuration] = self._cpp_program(toolchain)

    def _cpp_program(self, toolchain: Toolchain) -> Path:
        from nervure_lab.contract import Unavailable
        from nervure_lab.toolchain import IN_CHECKOUT

        if not IN_CHECKOUT:
            raise Unavailable("its program is built in a checkout of Nervure")
        return toolchain.cpp_program(self.name, ["nervure/peer.cpp"], toolchain.native_api())

    def versions(self) -> dict[str, str]:
        from nervure_lab.machine import source_version
        from nervure_lab.toolchain import python_versions

        return {"nervure": source_version(), **python_versions(self.python, ["numpy"])}

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        if wiring.configuration == "loan":
            return _NervureLender(_node(), topic)
        return _NervurePublisher(_node(), topic, wiring)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _NervureSubscriber(_node(), on_message, wiring)

    def launch(self, launch: Launch) -> None:
        if launch.configuration == "link":
            for endpoint in launch.endpoints:
                command = [sys.executable, "-m", __name__, str(self._command)]
                launch.spawn(endpoint, command)
            return
        keys = {"queue_size": launch.depth}
        if launch.configuration in self._programs:
            program = str(self._programs[launch.configuration])
            file = launch.write_dataflow(program, keys, {}, arguments="")
        else:
            function = f"{__name__}:run_composed" if launch.in_one_process else ""
            file = launch.write_dataflow(str(self.python), keys, {}, function)
        launch.spawn_launcher(
            [self._command, "run", file],
            {
                "NERVURE_LOG_DIR": f"{launch.directory}/nervure-logs",
                "PATH": f"{self.python.parent}:/usr/bin:/bin",
                "VIRTUAL_ENV": str(self.python.parent.parent),
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
    def __init__(self, node: Any, topic: str, wiring: Wiring) -> None:
        import numpy

        self._node = node
        self._topic = topic
        self._stamped = outgoing(wiring, lambda source: numpy.frombuffer(source, numpy.uint8))

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        self._node.send(self._topic, self._stamped(source, stamp))


class _NervureLender:
    def __init__(self, node: Any, topic: str) -> None:
        import numpy

        self._node = node
        self._topic = topic
        self._array: Callable[[Any], Any] = lambda source: numpy.frombuffer(source, numpy.uint8)

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        with self._node.loan(self._topic, (len(source),), "uint8") as loan:
            loan.array[:] = self._array(source)
            stamp(loan.array)


class _NervureSubscriber:
    def __init__(self, node: Any, on_message: OnMessage, wiring: Wiring) -> None:
        self._node = node
        self._on_message = on_message
        self._payload: Callable[[Any], Any] = lambda event: event.numpy()
        if wiring.message != BYTES:
            self._payload = lambda event: header_of(wiring.message, event.value)

    def spin(self, timeout_seconds: float) -> None:
        event = self._node.next(timeout=timeout_seconds)
        if event is not None and event.type == "INPUT":
            self._on_message(self._payload(event))


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
        self._programs: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        from nervure_lab.peer_endpoint import now_nanos

        opening = now_nanos()
        role, index = self._wiring.role, self._wiring.index
        if role == "subscriber":
            commands = [self._serve(publisher) for publisher in range(self._wiring.publishers)]
            self._programs = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in commands]
        hello = {"role": role, "index": index, "pid": os.getpid(), "opening": opening, "opened": now_nanos()}
        self._driver.report({**hello, "probes": False})
        while (line := self._driver.line()) is not None:
            word = line.partition(" ")[0]
            if word == "start" and role == "publisher":
                code = subprocess.run(self._send(), stdout=subprocess.DEVNULL, check=False).returncode
                if code not in (0, 3):  # 3: finished, but samples were lost.
                    raise SystemExit(f"error: `nervure link bench send` ended with {code}")
                self._driver.report({"sent": True})
            elif word == "stop":
                if role == "subscriber":
                    for program in self._programs:
                        # Waits for it if it has ended, so that its CPU time counts as that of this process.
                        program.poll()
                    self._report_receptions()
                self._driver.report({"stopped": True})
            elif word == "leave":
                for program in self._programs:
                    program.kill()
                return

    def _serve(self, publisher: int) -> list[str]:
        """One program for each publisher, which writes a file of its own."""
        words = [*self._bench, "serve", "--listen", self._address(publisher), "--once", "--json"]
        words += ["--allow", self._public_key(f"publisher-{publisher}")]
        self._public_key(f"subscriber-{publisher}")
        words += ["--key", self._key_file(f"subscriber-{publisher}")]
        return [*words, "--receptions", str(self._receptions(publisher))]

    def _send(self) -> list[str]:
        index = self._wiring.index
        quality = f"keep_last:{self._wiring.depth}" if self._wiring.reliable else "best_effort:10"
        stream = f"size={self._wiring.payload_bytes},rate_hz={self._wiring.rate_hz},qos={quality}"
        stream += f",count={self._messages}"
        words = [*self._bench, "send", "--connect", self._address(index), "--stream", stream, "--json"]
        self._public_key(f"publisher-{index}")
        words += ["--peer", self._public_key(f"subscriber-{index}")]
        words += ["--key", self._key_file(f"publisher-{index}")]
        return [*words, "--drain", f"{self._case['drain_seconds']}s"]

    def _address(self, publisher: int) -> str:
        return f"{self._wiring.address}:{self._wiring.port + publisher}"

    def _receptions(self, publisher: int) -> Path:
        return Path(self._wiring.directory) / f"receptions-of-{publisher}"

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
        """Writes the logs of all ends: every sample was due at its place in the schedule."""
        received = array.array("q")
        for publisher in range(self._wiring.publishers):
            first_due = self._read_receptions(publisher, received)
            sent = array.array("q")
            for number in range(self._messages):
                due = first_due + int(number * 1e9 / self._wiring.rate_hz)
                sent.extend((number, due, due, due, due))
            with (self._logs / f"publications-publisher-{publisher}.log").open("wb") as file:
                sent.tofile(file)
        with (self._logs / "receptions-subscriber-0.log").open("wb") as file:
            received.tofile(file)
        self._driver.report({"received": True, "wrong": 0})

    def _read_receptions(self, publisher: int, received: array.array[int]) -> int:
        """Appends them, and returns the due time of the first sample; 0 if nothing arrived."""
        first_due = None
        file = self._receptions(publisher)
        for line in file.read_text().splitlines() if file.exists() else []:
            fields = line.split()
            if len(fields) == 4:
                number, due, at = int(fields[1]), int(fields[2]), int(fields[3])
                if first_due is None:
                    first_due = due - int(number * 1e9 / self._wiring.rate_hz)
                received.extend((number, publisher, due, due, at, at))
        return first_due or 0


PEER = Nervure()

if __name__ == "__main__":
    LinkBench(sys.argv[1]).run()
