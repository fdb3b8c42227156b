"""State of a process that each node sees as its own: ``sys.argv``, ``sys.stdout``, ``sys.stderr`` and the
module ``__main__``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, MutableSequence
from types import ModuleType
from typing import Any, TextIO

from nervure._host.threads import current


def install() -> None:
    """Installs this module's objects in ``sys``."""
    sys.stdout = NodeStream("stdout", sys.stdout)
    sys.stderr = NodeStream("stderr", sys.stderr)
    sys.argv = NodeArguments(sys.argv)  # type: ignore[assignment]
    sys.modules["__main__"] = MainModule(sys.modules["__main__"])


class NodeStream:
    """A stream of the node that the calling thread belongs to, or of the process for other threads."""

    def __init__(self, name: str, of_process: TextIO) -> None:
        self._name = name
        self._of_process = of_process

    def _stream(self) -> TextIO:
        run = current()
        return self._of_process if run is None else run.streams.get(self._name, self._of_process)

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def flush(self) -> None:
        self._stream().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)


class NodeArguments(MutableSequence[str]):
    """The arguments of the node that the calling thread belongs to."""

    def __init__(self, of_process: list[str]) -> None:
        self._of_process = of_process

    def _list(self) -> list[str]:
        run = current()
        return self._of_process if run is None else run.arguments

    def __getitem__(self, at: Any) -> Any:
        return self._list()[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._list()[at] = value

    def __delitem__(self, at: Any) -> None:
        del self._list()[at]

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def __add__(self, other: Iterable[str]) -> list[str]:
        return [*self._list(), *other]

    def __eq__(self, other: object) -> bool:
        return self._list() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._list())

    def insert(self, at: int, value: str) -> None:
        self._list().insert(at, value)

    def copy(self) -> list[str]:
        return self._list().copy()


class MainModule(ModuleType):
    """The module ``__main__`` of the node that the calling thread belongs to.

    ``pickle``, ``typing``, ``dataclasses`` and ``multiprocessing`` look names up in it.
    """

    def __init__(self, of_process: ModuleType) -> None:
        super().__init__("__main__")
        object.__setattr__(self, "_of_process", of_process)

    def __getattribute__(self, name: str) -> Any:
        run = current()
        of_process = object.__getattribute__(self, "__dict__")["_of_process"]
        return getattr(of_process if run is None else run.main, name)

    def __setattr__(self, name: str, value: Any) -> None:
        run = current()
        of_process = object.__getattribute__(self, "__dict__")["_of_process"]
        setattr(of_process if run is None else run.main, name, value)
