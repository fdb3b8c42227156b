"""One host: latency over size and fan-out, flood, the cost of an idle node, the start of a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nervure_lab.experiments.local.case import Case, Language

KIB, MIB = 1024, 1024 * 1024
ALL_SIZES = [64, 4 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB]
FAN_OUT_SIZES = [64, 512 * KIB, 4 * MIB, 32 * MIB]
LANGUAGES: list[Language] = ["rust", "python"]
IMAGE_BYTES = 900 * KIB  # 640 x 480 pixels of 3 bytes


@dataclass(frozen=True)
class PlannedCase:
    """A case, for all adapters of its language that do not refuse it."""

    case: Case
    repeats: int
    only: frozenset[str] | None = None
    """Names of the adapters that take part; None for all."""

    @property
    def group(self) -> str:
        return self.case.mode

    @property
    def name(self) -> str:
        case = self.case
        parts = [case.language, case.mode, str(case.payload_bytes), f"1to{case.consumers}"]
        if not case.touch:
            parts.append("unread")
        if case.rate_hz != Case.rate_hz:
            parts.append(f"{case.rate_hz:g}hz")
        return "-".join(parts)

    def repeats_of(self, adapter: str) -> int:
        return self.repeats if self.only is None or adapter in self.only else 0


def plan(quick: bool) -> list[PlannedCase]:
    return _quick() if quick else _full()


def _quick() -> list[PlannedCase]:
    """Two to three minutes: a rough picture, not enough for a claim."""
    planned = []
    for language in LANGUAGES:
        for size, repeats in ((64, 3), (512 * KIB, 1), (4 * MIB, 2), (32 * MIB, 1)):
            planned.append(PlannedCase(_paced(language, size, warmup_messages=5, messages=30), repeats))
        planned.append(PlannedCase(_paced(language, 4 * MIB, consumers=8, warmup_messages=5, messages=20), 1))
        planned += [PlannedCase(replace(case, flood_seconds=0.8), 1) for case in _floods(language)]
        planned.append(PlannedCase(_paced(language, 4 * MIB, touch=False, messages=50), 1))
        planned.append(PlannedCase(_first_message(language), 1))
    planned.append(_image_of_dora(repeats=3))
    planned.append(PlannedCase(replace(_idle(), idle_seconds=4.0), 1))
    planned.append(_mesh(repeats=1))
    return planned


def _full() -> list[PlannedCase]:
    """About twenty-five minutes."""
    planned = []
    for language in LANGUAGES:
        # The claims rest on these. On a shared machine two runs differ by a factor of two: more runs narrow
        # the interval, longer ones do not.
        planned += [PlannedCase(_paced(language, size, messages=40), 10) for size in ALL_SIZES]
        for consumers in (4, 8):
            planned += [
                PlannedCase(_paced(language, size, consumers=consumers, messages=30), 3)
                for size in FAN_OUT_SIZES
            ]
        planned += [PlannedCase(case, 4) for case in _floods(language)]
        planned.append(PlannedCase(_paced(language, 4 * MIB, touch=False, messages=100), 3))
        planned.append(PlannedCase(_first_message(language), 5))
    planned.append(_image_of_dora(repeats=10))
    planned.append(PlannedCase(_idle(), 3))
    planned.append(_mesh(repeats=3))
    return planned


def _paced(
    language: Language,
    size: int,
    *,
    consumers: int = 1,
    warmup_messages: int = 10,
    messages: int = 50,
    touch: bool = True,
) -> Case:
    return Case(
        language=language,
        mode="paced",
        payload_bytes=size,
        consumers=consumers,
        warmup_messages=warmup_messages,
        messages=messages,
        touch=touch,
    )


def _floods(language: Language) -> list[Case]:
    """Small messages with deep queues; large ones with and without reading the payload."""
    small = Case(language=language, mode="flood", payload_bytes=64, queue_depth=256)
    large = Case(language=language, mode="flood", payload_bytes=4 * MIB)
    return [small, large, replace(large, touch=False)]


def _first_message(language: Language) -> Case:
    """One message, sent a millisecond after all endpoints are ready."""
    return Case(
        language=language,
        mode="paced",
        payload_bytes=64,
        rate_hz=1000.0,
        warmup_messages=0,
        messages=1,
        touch=False,
    )


def _idle() -> Case:
    return Case(language="python", mode="idle", payload_bytes=64)


def _image_of_dora(repeats: int) -> PlannedCase:
    """The image of dora's camera nodes, under dora and under Nervure."""
    case = _paced("python", IMAGE_BYTES, messages=40)
    return PlannedCase(case, repeats, only=frozenset({"dora-python", "nervure-dora-python"}))


def _mesh(repeats: int) -> PlannedCase:
    """How fast a large graph starts. It needs a launcher that wires graphs, so only Nervure takes part."""
    case = Case(language="rust", mode="mesh", payload_bytes=64, consumers=200, mesh_inputs=5)
    return PlannedCase(case, repeats, only=frozenset({"nervure-rust"}))
