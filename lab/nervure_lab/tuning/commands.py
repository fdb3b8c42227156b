"""The command ``tune-dds``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from nervure_lab.quantities import format_size, parse_bandwidth, parse_loss, parse_size
from nervure_lab.tuning.budget import Budget, DoesNotFit, mbit
from nervure_lab.tuning.settings import VENDORS, settings_text

DOES_NOT_FIT = 3
"""Exit code for a stream that exceeds the link's capacity."""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("tune-dds", help="write the settings of a DDS for large samples over a link")
    parser.add_argument("--for", dest="vendor", required=True, choices=VENDORS)
    parser.add_argument("--payload", required=True, metavar="SIZE", help="such as 512KB or 2MiB")
    parser.add_argument("--rate", required=True, type=float, metavar="HZ", help="samples per second")
    parser.add_argument(
        "--bandwidth", required=True, metavar="RATE", help="throughput of the link, such as 54Mbps"
    )
    parser.add_argument(
        "--loss", default="0%", metavar="PERCENT", help="packets lost from host to host; default 0%%"
    )
    parser.add_argument(
        "--utilisation", type=float, default=0.6, metavar="W", help="share for payload; default 0.6"
    )
    parser.add_argument("--mtu", type=int, default=1500, metavar="BYTES", help="default 1500")
    parser.add_argument(
        "--recover-within",
        type=float,
        metavar="SECONDS",
        help="keep no more samples than drain in this time after an outage",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="default tuned-VENDOR.xml")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run defaults and file over the emulated link, through an outage",
    )
    parser.add_argument(
        "--outage", type=float, default=5.0, metavar="SECONDS", help="with --verify; default 5"
    )
    parser.add_argument(
        "--round-trip", type=float, default=2.0, metavar="MS", help="with --verify; default 2"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="with --verify; default tuned-VENDOR")
    parser.set_defaults(action=_tune)


def _tune(arguments: argparse.Namespace) -> int:
    budget = _budget(arguments)
    try:
        budget.require_fit()
    except DoesNotFit as error:
        print(f"error: {error}", file=sys.stderr)
        return DOES_NOT_FIT
    output: Path = arguments.output or Path(f"tuned-{arguments.vendor}.xml")
    output.write_text(settings_text(arguments.vendor, budget, output.name) + "\n", encoding="utf-8")
    print(
        f"{format_size(budget.payload_bytes)} at {budget.rate_hz:g} Hz: {mbit(budget.offered_bits)} of the "
        f"{mbit(budget.usable_bits)} that {mbit(budget.bandwidth_bits)} carry at a utilisation of "
        f"{budget.utilisation:g}"
    )
    print(
        f"history: {budget.history} samples; a full one drains in {budget.drain_seconds:.1f} s beside the "
        "live stream"
    )
    print(f"heartbeat: every {1000 * budget.heartbeat_seconds:.1f} ms")
    print(output)
    if budget.retransmitted_bits >= budget.usable_bits:
        print(
            f"warning: with {100 * budget.loss:g} % loss retransmission brings the stream to "
            f"{mbit(budget.retransmitted_bits)}, above {mbit(budget.usable_bits)}: it may fall behind",
            file=sys.stderr,
        )
    return _verify(arguments, budget, output) if arguments.verify else 0


def _budget(arguments: argparse.Namespace) -> Budget:
    """Raises ``ValueError`` with the option and the expectation."""
    if arguments.rate <= 0:
        raise ValueError(f"--rate: expected a number above 0, got {arguments.rate:g}")
    if not 0 < arguments.utilisation <= 1:
        raise ValueError(f"--utilisation: expected a share from 0 to 1, got {arguments.utilisation:g}")
    if not 576 <= arguments.mtu <= 65535:
        raise ValueError(f"--mtu: expected 576 to 65535, got {arguments.mtu}")
    if arguments.recover_within is not None and arguments.recover_within <= 0:
        raise ValueError(f"--recover-within: expected a time above 0, got {arguments.recover_within:g}")
    budget = Budget(
        int(parse_size(arguments.payload, "--payload")),
        arguments.rate,
        parse_bandwidth(arguments.bandwidth, "--bandwidth") * 1e6,
        parse_loss(arguments.loss, "--loss") / 100,
        arguments.utilisation,
        arguments.mtu,
        arguments.recover_within,
    )
    if budget.payload_bytes <= 0 or budget.bandwidth_bits <= 0:
        raise ValueError("expected a payload and a bandwidth above 0")
    return budget


def _verify(arguments: argparse.Namespace, budget: Budget, settings: Path) -> int:
    from nervure_lab.comparison.commands import write_reports
    from nervure_lab.peers.cyclonedds import PEER as CYCLONE
    from nervure_lab.peers.fastdds import PEER as FAST
    from nervure_lab.runner import Options, run_experiment
    from nervure_lab.tuning.verification import (
        NAME,
        Vendor,
        Verification,
        describe,
        write_declaration,
    )

    vendors = {"fast": Vendor(FAST, "default-async"), "cyclone": Vendor(CYCLONE, "default")}
    directory: Path = arguments.out or Path(f"tuned-{arguments.vendor}")
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as folder:
        declaration = Path(folder) / f"{NAME}.toml"
        write_declaration(budget, arguments.outage, arguments.round_trip, declaration)
        experiment = Verification(vendors[arguments.vendor], settings, declaration)
        result = run_experiment(
            experiment,
            experiment.plan(quick=False),
            experiment.adapters(),
            Options("full"),
            directory / f"{NAME}.jsonl",
        )
    if result["interrupted"]:
        return 130
    for line in describe(directory, budget):
        print(line)
    write_reports(directory)
    return 0 if all(run["outcome"] == "ok" for run in result["runs"]) and result["runs"] else 1
