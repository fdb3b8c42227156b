"""The settings as files: XML profiles of Fast DDS, and the configuration of Cyclone DDS. Each template
names the source of every setting.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nervure_lab.tuning.budget import Budget

VENDORS = ("cyclone", "fast")
_SEGMENT_SAMPLES = 4
"""Samples in the shared memory of Fast DDS for local peers."""
_LEAST_SEGMENT_BYTES = 1 << 20
_LEAST_BURST_BYTES = 1 << 20
"""Cyclone's default of ``MaxRexmit``."""
_LEAST_WATERMARK_BYTES = 500_000
"""Cyclone's default of ``WhcHigh``."""


def settings_text(vendor: str, budget: Budget, file_name: str) -> str:
    """Returns the text of the file, which fits publishers and subscribers."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)
    return environment.get_template(f"{vendor}.xml.jinja").render(
        budget=budget,
        file_name=file_name,
        duration=_duration,
        heartbeat=f"{1000 * budget.heartbeat_seconds:.3f}ms",
        segment_bytes=max(_SEGMENT_SAMPLES * budget.payload_bytes, _LEAST_SEGMENT_BYTES),
        watermark_bytes=max(budget.history_bytes, _LEAST_WATERMARK_BYTES),
        burst_bytes=max(budget.payload_bytes, _LEAST_BURST_BYTES),
    )


def _duration(seconds: float) -> str:
    whole = int(seconds)
    return f"<sec>{whole}</sec><nanosec>{round((seconds - whole) * 1e9)}</nanosec>"
