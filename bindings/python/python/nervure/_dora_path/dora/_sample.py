"""What ``Node.send_output_raw`` returns."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class SampleHandler:
    """Shared memory for one value of bytes: fill it, then send it, or leave the ``with`` block."""

    def __init__(self, loan: Any) -> None:
        self._loan = loan
        self._is_sent = False

    def as_buffer(self) -> Any:
        """The memory, as an object with the buffer protocol."""
        self._check()
        return self._loan.array

    def as_memoryview(self) -> memoryview:
        """The memory. Release the view before the value is sent."""
        self._check()
        return memoryview(self._loan.array)

    def send(self) -> None:
        """Sends the value. Views of its memory have to be released before."""
        self._check()
        self._loan.send()
        self._is_sent = True

    def __enter__(self) -> Any:
        return self.as_buffer()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.send()

    def _check(self) -> None:
        if self._is_sent:
            raise RuntimeError("the sample has already been sent")
