"""The figures of runs that are more than one stream: interruptions, concurrent flows, robots that share a
channel, connections. Each function takes a stored run and returns its figures by name. Also the disturbance
of a run by the machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nervure_lab.statistics import fairness, nearest_rank

UDP_SHARE = 1472 / 1500
"""Share of a packet of 1500 bytes that the headers of IP and UDP leave."""
SAMPLE_SHARE = 1408 / 1500
"""Share that also the headers of Nervure's link and its encryption leave. The simulated link uses the same.
"""
SETTLING_MICROS = 5_000_000
"""Time for flows to settle before their shares are measured."""
ANY_AGE_MS = 1000.0
"""Greatest age of a fresh sample where samples have no lifespan."""
DISTURBED = 0.005
"""Share of a run; if the machine was stopped for longer, the run is repeated, because latency is judged by
the slowest hundredth of the samples."""
CROWDED = 0.75
"""Share of the processors' time; if concurrent runs took more, they are repeated."""


def stopped_share(run: dict[str, Any]) -> float:
    """Returns the share of a run, 0 to 1, during which the machine was stopped; 0 if not known."""
    machine = run.get("machine", {})
    if not machine.get("realtime"):
        return 0.0
    seconds = run["link"]["seconds"] if run["link"] else run["case"]["samples"] / run["case"]["rate_hz"]
    return float(machine["stopped_ms"] * 1e-3 / seconds)


def is_crowded(run: dict[str, Any]) -> bool:
    """Whether concurrent runs loaded the machine so much that they disturbed each other."""
    return bool(run.get("beside_others")) and run["machine"].get("busy_share", 0.0) > CROWDED


def disturbance(run: dict[str, Any]) -> str:
    """Returns the reason why a disturbed run is repeated; empty if it is not."""
    if stopped_share(run) > DISTURBED:
        return f"the machine was stopped for {100 * stopped_share(run):.1f} % of it"
    if is_crowded(run):
        return f"with others it took {100 * run['machine']['busy_share']:.0f} % of the processors"
    return ""


def cpu_seconds(ends: Sequence[dict[str, Any] | None]) -> float | None:
    """Returns the CPU time of these ends together, from reports of the lab or of `nervure link bench`; None
    if one is missing.
    """
    reports = [report or {} for report in ends]
    seconds = [report.get("cpu_s", report.get("link", {}).get("cpu_s")) for report in reports]
    return None if None in seconds else float(sum(seconds))


def cores_taken(run: dict[str, Any]) -> float | None:
    """Returns the mean cores used by the emulator and all ends; None if one is unknown."""
    link = run["link"] or {}
    ends = cpu_seconds([flow[end] for flow in run["flows"] for end in ("receiver", "sender")])
    if ends is None or "cpu_seconds" not in link:
        return None
    return float((link["cpu_seconds"] + ends) / link["seconds"])


def measures(run: dict[str, Any]) -> dict[str, float]:
    """Returns the figures of this kind of run; none for a plain stream, or if the reports are incomplete."""
    case = run["case"]
    if case["connects"]:
        return _connections(run)
    if case["outage"]:
        return _outage(run)
    if case["robots"] > 1:
        return _robots(run)
    if case["beside"]:
        return _sharing(run)
    return {}


def _outage(run: dict[str, Any]) -> dict[str, float]:
    case, flow = run["case"], run["flows"][0]
    receptions = flow.get("receptions_micros", [])
    over_micros = sum(case["outage"]) * 1e6
    lifespan_ms = case["lifespan_ms"] or ANY_AGE_MS
    ages = [(received, (received - due) * 1e-3) for _, due, received in receptions]
    fresh = [received for received, age in ages if received >= over_micros and age <= lifespan_ms]
    figures = {
        "fresh_after_ms": (min(fresh) - over_micros) * 1e-3 if fresh else math.inf,
        "oldest_ms": max((age for _, age in ages), default=math.inf),
        "delivered": len({number for number, _, _ in receptions}),
    }
    streams = (flow["sender"] or {}).get("streams")
    if case["keep_all"] and streams:
        accepted = sum(stream["accepted"] for stream in streams.values())
        numbers = [number for number, _, _ in receptions]
        figures |= {
            "accepted": accepted,
            "accepted_lost": accepted - len(set(numbers)),
            "duplicates": len(numbers) - len(set(numbers)),
            "out_of_order": sum(later < earlier for earlier, later in pairwise(numbers)),
        }
    return figures


def _sharing(run: dict[str, Any]) -> dict[str, float]:
    """Shares of the link's rate while both flows run and have settled."""
    case = run["case"]
    one = _progress(run["flows"][0], case)
    other = run["beside"] if run["beside"] is not None else _progress(run["flows"][1], case)
    start, end = _all_settled(run["flows"], case)
    if run["beside"]:
        start = max(start, run["beside"][0][0] + SETTLING_MICROS)
    if not one or not other or end <= start:
        return {}
    limit_mbit = case["rate_mbit"] * UDP_SHARE
    mine, others = (100 * _mbit(progress, start, end) / limit_mbit for progress in (one, other))
    mean = (mine + others) / 2
    return {
        "share_percent": mine,
        "other_percent": others,
        "apart_percent": 100 * abs(mine - others) / mean if mean else math.inf,
        "shared_seconds": (end - start) * 1e-6,
    }


def _robots(run: dict[str, Any]) -> dict[str, float]:
    """Fairness and sum of the flows while all run, and the bytes on air for each delivered byte."""
    case, hosts = run["case"], run["link"]["hosts"]
    flows = [_progress(flow, case) for flow in run["flows"]]
    start, end = _all_settled(run["flows"], case)
    if end <= start:
        return {}
    rates = [_mbit(flow, start, end) for flow in flows]
    delivered_bytes = sum(flow[-1][1] for flow in flows if flow)
    return {
        "jain": fairness(rates),
        "aggregate_percent": 100 * sum(rates) / (case["rate_mbit"] * SAMPLE_SHARE * kept(hosts[1:])),
        "least_mbit": min(rates),
        "most_mbit": max(rates),
        "wire_bytes_per_byte": sum(host["offered"]["bytes"] for host in hosts) / delivered_bytes,
        "shared_seconds": (end - start) * 1e-6,
    }


def _connections(run: dict[str, Any]) -> dict[str, float]:
    """Times from the start of each program to the reception of its first sample; infinite without one."""
    flow = run["flows"][0]
    starts = [start for start, _ in (flow["sender"] or {}).get("starts_micros", [])]
    if not starts:
        return {}
    receptions = flow.get("receptions_micros", [])
    taken = []
    for start, following in zip(starts, [*starts[1:], math.inf], strict=True):
        own = [received for _, due, received in receptions if start <= due < following]
        taken.append((min(own) - start) * 1e-3 if own else math.inf)
    taken.sort()
    return {
        "connections": len(taken),
        "first_p50_ms": nearest_rank(taken, 0.5),
        "first_p95_ms": nearest_rank(taken, 0.95),
        "first_max_ms": taken[-1],
    }


def kept(hosts: list[dict[str, Any]]) -> float:
    """Returns the share of these hosts' packets that passed the channel; queue overflows do not count."""
    arrived = sum(host["delivered"]["packets"] for host in hosts)
    causes = ("lost_random", "lost_burst", "lost_outage")
    decided = arrived + sum(host[cause]["packets"] for host in hosts for cause in causes)
    return arrived / decided if decided else 1.0


def _all_settled(flows: list[dict[str, Any]], case: dict[str, Any]) -> tuple[float, float]:
    """Returns the interval in which all flows run and have settled, by their schedules, so that a flow that
    delivers nothing for a time does not shorten it. Flows without any sample are left out.
    """
    period_micros = 1e6 / case["rate_hz"]
    firsts = [flow["receptions_micros"][0] for flow in flows if flow.get("receptions_micros")]
    starts = [due - number * period_micros for number, due, _ in firsts]
    if not starts:
        return (0.0, 0.0)
    return (max(starts) + SETTLING_MICROS, min(starts) + case["samples"] * period_micros)


def _progress(flow: dict[str, Any], case: dict[str, Any]) -> list[list[float]]:
    """Returns pairs: time, bytes of payload that had arrived by then."""
    receptions = flow.get("receptions_micros", [])
    return [
        [received, number * case["payload_bytes"]]
        for number, (_, _, received) in enumerate(receptions, start=1)
    ]


def _mbit(progress: list[list[float]], start: float, end: float) -> float:
    before = max((total for time, total in progress if time <= start), default=0)
    until = max((total for time, total in progress if time <= end), default=0)
    return (until - before) * 8 / (end - start)
