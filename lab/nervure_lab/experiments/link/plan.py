"""The plan: cells with their samples and seeds, in the order of the runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nervure_lab.experiments.link.case import LinkCase

SEEDS = 5
SEEDS_OF_PEERS = 2
SAMPLES_OF_PEERS = 300
GROUPS_IN_FULL = frozenset({"headline", "small"})
"""Groups in which a peer that delivered a part of its samples sends as many as Nervure with its next seed."""

_DDS = frozenset({"cyclonedds", "fastdds"})
_ALL_BUT_UDP = _DDS | {"tcp-bbr", "tcp-cubic", "zenoh", "zeromq"}
_ALL = _ALL_BUT_UDP | {"udp"}
_SOME = frozenset({"tcp-bbr", "zenoh", "cyclonedds", "fastdds"})
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Group:
    """Cells that answer one question; a section of the page."""

    name: str
    title: str
    about: str


GROUPS = (
    Group(
        "headline",
        "Large samples",
        "512 KiB at 30 Hz, over every rate and loss. A link of 54 Mbit/s carries only a part of the samples: "
        "there Nervure keeps the last sample and drops samples older than 250 ms. The peers always keep the "
        "last ten.",
    ),
    Group("small", "Small samples", "1 KiB at 30 Hz."),
    Group(
        "sharing",
        "Sharing",
        "Beside a TCP flow (Cubic) without a rate limit, beside a second flow of Nervure, and thirty robots "
        "on one channel. The second flow joins 8 s after the first; figures are from 5 s after that to the "
        "end of the first.",
    ),
    Group("gigabit", "Clean gigabit", "4 MB at 20 Hz, no loss, RTT 0.2 ms, like a cable."),
    Group(
        "outage",
        "Outage",
        "No packet arrives from 10 s to 30 s, half of the schedule. *Fresh after* is the time from the end "
        "of the outage to the first sample that is no older than its lifespan (a second where it has none), "
        "*oldest* the greatest age of a delivered sample.",
    ),
    Group("connect", "Connecting", "From the start of the program to the reception of its first sample."),
    Group("veth", "No link at all", "10 KB at 100 Hz over a pair of Ethernet devices, without the emulator."),
    Group("special", "Other links", "512 KiB at 30 Hz over links with one difficulty each."),
    Group(
        "poster",
        "Large data over lossy wireless",
        "The sizes and losses of the poster, at 300 Mbit/s and 30 Hz.",
    ),
    Group(
        "grid",
        "The grid of the 2020 report",
        "Its 30 configurations, with reliable KEEP_LAST(10). The report set a loss on each of two hops; here "
        "one link has the loss of both.",
    ),
)


@dataclass(frozen=True)
class PlannedCase:
    group: str
    name: str
    """Unique; ``--cells`` matches it."""
    case: LinkCase
    peers: frozenset[str]
    """Adapters to measure beside Nervure."""
    seeds: int = SEEDS
    seeds_of_peers: int = SEEDS_OF_PEERS

    def repeats_of(self, adapter: str) -> int:
        if adapter == "nervure":
            return self.seeds
        return self.seeds_of_peers if adapter in self.peers else 0

    def case_of(self, adapter: str, in_full: bool) -> LinkCase:
        """Returns the case with fewer samples for a peer, unless the samples have to cover a duration."""
        case = self.case
        if (
            adapter == "nervure"
            or (in_full and self.group in GROUPS_IN_FULL)
            or case.outage
            or case.beside
            or case.veth
        ):
            return case
        return replace(case, samples=min(case.samples, SAMPLES_OF_PEERS))


def plan(quick: bool) -> list[PlannedCase]:
    """Returns every case, the most important first. A case of two groups is listed twice and run once."""
    return _quick() if quick else _full()


def _quick() -> list[PlannedCase]:
    """Five minutes: enough for a first impression, not for a claim."""
    wanted = ("300-0-512K", "300-20-512K", "300-40-512K", "54-20-512K", "1000-20-512K")
    return [
        replace(planned, case=replace(planned.case, samples=120), seeds=1, seeds_of_peers=1)
        for planned in _full()
        if planned.name in wanted
    ]


def _full() -> list[PlannedCase]:
    return [
        *_headline(),
        *_small(),
        *_sharing(),
        PlannedCase("gigabit", "gigabit-4M", LinkCase(1000, 0, 4_000_000, 20.0, round_trip_ms=0.2), _ALL),
        *_outage(),
        *_connect(),
        *_veth(),
        *_special(),
        *_poster(),
        *_grid(),
    ]


def _headline() -> Iterable[PlannedCase]:
    # Cells of one rate are adjacent, because they run concurrently.
    for rate in (300, 1000, 54):
        for loss in (20, 40, 0, 1, 10):
            # 54 Mbit/s carries only a part of the samples, so old ones are dropped.
            case = LinkCase(54, loss, keep_last=1, lifespan_ms=250.0) if rate == 54 else LinkCase(rate, loss)
            # UDP at one rate only: without retransmission the effect of loss does not depend on the rate.
            peers = _ALL if rate == 300 else _ALL_BUT_UDP if loss in (0, 20, 40) else _NONE
            yield PlannedCase("headline", f"{rate}-{loss}-512K", case, peers)


def _small() -> Iterable[PlannedCase]:
    for loss in (40, 20, 0, 1, 10):
        yield PlannedCase("small", f"300-{loss}-1K", LinkCase(300, loss, 1024), _ALL_BUT_UDP)


def _sharing() -> Iterable[PlannedCase]:
    alone = LinkCase(300, 0, rate_hz=60.0, samples=1800)
    for beside in ("cubic-first", "cubic-later", "same-later"):
        yield PlannedCase("sharing", beside, replace(alone, beside=beside), _NONE)
    robots = LinkCase(54, 0, 22_500, half_duplex=True, robots=30)
    yield PlannedCase("sharing", "robots-30", robots, _NONE)


def _outage() -> Iterable[PlannedCase]:
    poster = LinkCase(100, 1, 128 * 1024, samples=1200, lifespan_ms=500.0, outage=(10.0, 20.0))
    yield PlannedCase("outage", "outage-128K", poster, frozenset({"tcp-bbr", "zenoh", "zeromq"}) | _DDS, 5, 1)
    yield PlannedCase(
        "outage", "outage-512K", replace(poster, rate_mbit=300, payload_bytes=512 * 1024), _DDS, 5, 1
    )
    all_kept = replace(poster, keep_all=True, lifespan_ms=0.0)
    yield PlannedCase("outage", "outage-128K-keep-all", all_kept, _NONE)


def _connect() -> Iterable[PlannedCase]:
    for loss in (0, 40):
        case = LinkCase(300, loss, 1024, samples=200, connects=200)
        yield PlannedCase("connect", f"connect-{loss}", case, _NONE, seeds=1)


def _veth() -> Iterable[PlannedCase]:
    case = LinkCase(0, 0, 10_000, 100.0, round_trip_ms=0, queue_ms=0, veth=True)
    yield PlannedCase("veth", "veth-10K", case, frozenset({"udp"}), SEEDS, SEEDS)


def _special() -> Iterable[PlannedCase]:
    cells = {
        "rtt-40": LinkCase(300, 20, round_trip_ms=40),
        "rtt-200": LinkCase(300, 20, round_trip_ms=200),
        "fades": LinkCase(300, 10, fade="270ms:30ms"),
        "jitter": LinkCase(300, 20, jitter_ms=5),
        "half-duplex": LinkCase(300, 20, half_duplex=True),
        "queue-5ms": LinkCase(54, 10, queue_ms=5),
        "queue-1s": LinkCase(300, 20, queue_ms=1000),
        # More samples queue than can be sent within their lifespan.
        "lifespan": LinkCase(54, 20, lifespan_ms=250),
    }
    for name, case in cells.items():
        yield PlannedCase("special", name, case, _SOME, seeds_of_peers=1)


def _poster() -> Iterable[PlannedCase]:
    for kib in (32, 64, 128, 256, 512):
        for loss in (0, 1, 20):
            yield PlannedCase("poster", f"poster-{loss}-{kib}K", LinkCase(300, loss, kib * 1024), _DDS)


def _grid() -> Iterable[PlannedCase]:
    for rate in (54, 300, 1000):
        for hop_loss in (0, 10, 20, 30, 40):
            loss = round(100 * (1 - (1 - hop_loss / 100) ** 2), 2)
            for size, name in ((1024, "1k"), (524_288, "512k")):
                yield PlannedCase("grid", f"grid-{rate}-{hop_loss}-{name}", LinkCase(rate, loss, size), _DDS)
