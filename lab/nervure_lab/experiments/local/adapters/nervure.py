"""Nervure itself, from this checkout: Rust and Python nodes under `nervure run`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.local.case import Case, Kind, Language, RunResult, endpoint_arguments
from nervure_lab.experiments.local.dataflow import write_dataflow, write_nodes
from nervure_lab.experiments.local.session import Session
from nervure_lab.peer import Peer
from nervure_lab.peers.dora import PEER as DORA
from nervure_lab.peers.nervure import PEER as NERVURE
from nervure_lab.toolchain import (
    PROGRAMS_OF_NERVURE,
    REPOSITORY_DIRECTORY,
    Toolchain,
    crate_versions,
    python_versions,
)

_ENVIRONMENT = REPOSITORY_DIRECTORY / ".venv"
_COMMANDS = [_ENVIRONMENT / "bin" / "nervure", PROGRAMS_OF_NERVURE / "nervure"]
_SETTINGS = (
    "`nervure run` of a dataflow file with `queue_size`, the queue depth of the case, and in floods "
    "`queue_policy: block`. Otherwise the defaults."
)


class _Nervure:
    kind: Kind = "ours"
    _command: Path

    def refusal(self, case: Case) -> str | None:
        return None

    def run(self, case: Case) -> RunResult:
        with Session(case, producers=0 if case.mode == "mesh" else 1) as session:
            file = self._dataflow(case, session)
            # The session's folder holds the logs, so that they do not mix with the user's own.
            environment = {"NERVURE_LOG_DIR": str(session.directory / "logs"), **self._environment()}
            session.spawn([self._command, "run", file], environment=environment)
            return session.result()

    def _node(self) -> dict[str, Any]:
        """The keys that start a node of this language."""
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {}

    def _dataflow(self, case: Case, session: Session) -> str:
        if case.mode == "mesh":
            return write_nodes(session, self._mesh(case, session))
        keys = {"queue_policy": "block"} if case.mode == "flood" else {}
        return write_dataflow(session, self._node(), keys)

    def _mesh(self, case: Case, session: Session) -> list[dict[str, Any]]:
        """Each node subscribes to the nodes after it, in a ring."""
        return [
            {
                "id": f"node-{index}",
                "inputs": {
                    f"in-{step}": f"node-{(index + step + 1) % case.consumers}/out"
                    for step in range(case.mesh_inputs)
                },
                "outputs": ["out"],
                "env": session.environment("consumer", index),
                **self._node(),
            }
            for index in range(case.consumers)
        ]


class NervureRust(_Nervure):
    name = "nervure-rust"
    title = "Nervure (Rust)"
    language: Language = "rust"
    copies_in_send = False
    settings = _SETTINGS + " Messages are loaned, filled in place and sent."

    def prepare(self, toolchain: Toolchain) -> None:
        self._command = _find_command()
        self._program = toolchain.rust_program("nervure-lab-nervure")

    def versions(self) -> dict[str, str]:
        return {"nervure": _version(self._command), **crate_versions([])}

    def _node(self) -> dict[str, Any]:
        return {"path": str(self._program)}


class NervurePython(_Nervure):
    name = "nervure-python"
    title = "Nervure (Python)"
    language: Language = "python"
    copies_in_send = True
    _peer: Peer = NERVURE
    settings = (
        _SETTINGS + " `node.send` copies NumPy arrays into shared memory. The consumer releases each event "
        "before it waits for the next (`del event`)."
    )

    def prepare(self, toolchain: Toolchain) -> None:
        self._command = _find_command()
        self._python = _ENVIRONMENT / "bin" / "python"
        if not self._python.exists():
            raise Unavailable("there is no .venv in the checkout; `make demo` makes it")

    def versions(self) -> dict[str, str]:
        return {"nervure": _version(self._command), **python_versions(self._python, ["numpy"])}

    def _node(self) -> dict[str, Any]:
        program, *arguments = endpoint_arguments(self._peer, "default")
        return {"path": program, "args": " ".join(arguments)}

    def _environment(self) -> dict[str, str]:
        environment = self._python.parent.parent
        return {"PATH": f"{self._python.parent}:/usr/bin:/bin", "VIRTUAL_ENV": str(environment)}


class NervureDora(NervurePython):
    _peer = DORA
    name = "nervure-dora-python"
    title = "dora's programs under Nervure (Python)"
    settings = (
        "The programs, the Python and the packages of dora (Python), unchanged, under `nervure run`: its "
        "package `dora` precedes the installed one. Two keys as for Nervure: `queue_size`, and in floods "
        "`queue_policy: block`."
    )

    def prepare(self, toolchain: Toolchain) -> None:
        self._command = _find_command()
        DORA.prepare(toolchain)
        self._python = DORA.python

    def versions(self) -> dict[str, str]:
        return {"nervure": _version(self._command), **python_versions(self._python, ["pyarrow", "numpy"])}


def _find_command() -> Path:
    for command in _COMMANDS:
        if command.exists():
            return command
    raise Unavailable("there is no `nervure` in .venv or target/release; `make demo` makes it")


def _version(command: Path) -> str:
    finished = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return finished.stdout.strip().removeprefix("nervure ") or "unknown"


ADAPTERS = [NervureRust(), NervurePython(), NervureDora()]
