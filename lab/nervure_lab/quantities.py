"""Sizes, rates and shares with their units: as options of the command line, and as text."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SIZES = {"B": 1, "KB": 1000, "KIB": 1024, "MB": 1000**2, "MIB": 1024**2}
_RATES = {"KBPS": 1e-3, "MBPS": 1.0, "MBIT": 1.0, "GBPS": 1e3, "GBIT": 1e3}


def parse_size(text: str, option: str) -> float:
    """Returns bytes; raises ``ValueError`` with the option and the expectation."""
    return _number(text, _SIZES, option, "a size such as 512KB")


def parse_bandwidth(text: str, option: str) -> float:
    """Returns Mbit/s; raises ``ValueError`` with the option and the expectation."""
    return _number(text, _RATES, option, "a rate such as 54Mbps")


def parse_loss(text: str, option: str) -> float:
    """Returns a percentage; raises ``ValueError`` with the option and the expectation."""
    match = _NUMBER.fullmatch(text.removesuffix("%").strip())
    percent = float(text.removesuffix("%")) if match else -1.0
    if not 0 <= percent < 100:
        raise ValueError(f"{option}: expected a percentage such as 5%, got {text!r}")
    return percent


def format_size(count: int) -> str:
    """In the largest unit of which it is a whole number, decimal before binary: 512 KB and 512 KiB."""
    for unit, size in _UNITS:
        if count and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} B"


_UNITS = (("MB", 1000**2), ("MiB", 1 << 20), ("KB", 1000), ("KiB", 1 << 10))
_NUMBER = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")


def _number(text: str, units: Mapping[str, float], option: str, expectation: str) -> float:
    match = re.fullmatch(rf"({_NUMBER.pattern})\s*([A-Za-z/]*)", text.strip())
    unit = match.group(2).upper().replace("/S", "") if match else ""
    if not match or (unit or next(iter(units))) not in units:
        raise ValueError(f"{option}: expected {expectation}, got {text!r}")
    return float(match.group(1)) * units[unit or next(iter(units))]
