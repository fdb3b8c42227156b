"""Floor for Python: processes connected by unix stream sockets."""

from __future__ import annotations

import platform
import socket
from pathlib import Path

from nervure_lab.experiments.local.case import ENDPOINTS, Case, Kind, Language, RunResult
from nervure_lab.experiments.local.session import Session
from nervure_lab.toolchain import Toolchain, python_versions


class UnixSocket:
    name = "floor-socket"
    title = "floor: unix socket (Python)"
    language: Language = "python"
    kind: Kind = "floor"
    copies_in_send = True
    settings = (
        "`socket.sendall` and `recv_into` a reused buffer over one stream socket per consumer: the cost of "
        "Python without middleware. The kernel copies the payload in and out."
    )

    def prepare(self, toolchain: Toolchain) -> None:
        self._python = toolchain.python_environment("plain", ["numpy>=2,<3"])

    def versions(self) -> dict[str, str]:
        return {**python_versions(self._python, ["numpy"]), "linux": platform.release()}

    def refusal(self, case: Case) -> str | None:
        return None

    def run(self, case: Case) -> RunResult:
        pairs = [socket.socketpair() for _ in range(case.consumers)]
        program: list[str | Path] = [self._python, ENDPOINTS / "over_unix_socket.py"]
        try:
            with Session(case) as session:
                for index, (_, receiving) in enumerate(pairs):
                    number = str(receiving.fileno())
                    session.spawn(
                        [*program, number], role="consumer", index=index, pass_fds=[receiving.fileno()]
                    )
                sending = [ours.fileno() for ours, _ in pairs]
                session.spawn([*program, *map(str, sending)], role="producer", pass_fds=sending)
                return session.result()
        finally:
            for pair in pairs:
                for end in pair:
                    end.close()


ADAPTERS = [UnixSocket()]
