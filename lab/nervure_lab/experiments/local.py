"""One host: latency over size and fan-out, flood, what an idle node costs, how soon messages flow."""

from __future__ import annotations

from dataclasses import replace

from nervure_lab.contract import Case, Language
from nervure_lab.plan import Experiment, PlannedCase

KIB, MIB = 1024, 1024 * 1024
ALL_SIZES = [64, 4 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB]
FAN_OUT_SIZES = [64, 512 * KIB, 4 * MIB, 32 * MIB]
LANGUAGES: list[Language] = ["rust", "python"]


def plan(quick: bool) -> list[PlannedCase]:
    return _quick() if quick else _full()


def _quick() -> list[PlannedCase]:
    """Two to three minutes: enough to see where things stand, not enough for a claim."""
    planned = []
    for language in LANGUAGES:
        for size, repeats in ((64, 3), (512 * KIB, 1), (4 * MIB, 2), (32 * MIB, 1)):
            planned.append(PlannedCase(_paced(language, size, warmup_messages=5, messages=30), repeats))
        planned.append(PlannedCase(_paced(language, 4 * MIB, consumers=8, warmup_messages=5, messages=20), 1))
        planned += [PlannedCase(replace(case, flood_seconds=0.8), 1) for case in _floods(language)]
        planned.append(PlannedCase(_paced(language, 4 * MIB, touch=False, messages=50), 1))
        planned.append(PlannedCase(_first_message(language), 1))
    planned.append(PlannedCase(replace(_idle(), idle_seconds=4.0), 1))
    planned.append(_mesh(repeats=1))
    return planned


def _full() -> list[PlannedCase]:
    """About twenty-five minutes."""
    planned = []
    for language in LANGUAGES:
        # The claims rest on these. On a shared machine a run differs from the next by a factor of two:
        # what narrows the interval is more runs, not longer ones.
        planned += [PlannedCase(_paced(language, size, messages=40), 10) for size in ALL_SIZES]
        for consumers in (4, 8):
            planned += [
                PlannedCase(_paced(language, size, consumers=consumers, messages=30), 3)
                for size in FAN_OUT_SIZES
            ]
        planned += [PlannedCase(case, 4) for case in _floods(language)]
        planned.append(PlannedCase(_paced(language, 4 * MIB, touch=False, messages=100), 3))
        planned.append(PlannedCase(_first_message(language), 5))
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
    """Small messages with room to queue; large ones read, and not read."""
    small = Case(language=language, mode="flood", payload_bytes=64, queue_depth=256)
    large = Case(language=language, mode="flood", payload_bytes=4 * MIB)
    return [small, large, replace(large, touch=False)]


def _first_message(language: Language) -> Case:
    """The first message leaves a millisecond after everybody is there."""
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


def _mesh(repeats: int) -> PlannedCase:
    """How fast a large graph starts. Needs a launcher that wires graphs: a target of Nervure's alone."""
    case = Case(language="rust", mode="mesh", payload_bytes=64, consumers=200, mesh_inputs=5)
    return PlannedCase(case, repeats, only=frozenset({"nervure-rust"}))


EXPERIMENT = Experiment("local", "one host: latency, fan-out, flood, idle cost, start", plan)
