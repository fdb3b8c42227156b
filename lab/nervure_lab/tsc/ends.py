"""The two ends of a run: the logs of its publisher and of its subscriber."""

from __future__ import annotations

from dataclasses import dataclass

from nervure_lab.performance_test import Log

SILENT_SECONDS = 5


@dataclass(frozen=True)
class Ends:
    publisher: Log
    subscriber: Log

    @property
    def sent(self) -> float:
        return self.publisher.total("sent")

    @property
    def received(self) -> float:
        return self.subscriber.total("received")

    @property
    def ended_silent(self) -> bool:
        """Whether nothing was received in the last seconds."""
        return not any(self.subscriber.column("received")[-SILENT_SECONDS:])
