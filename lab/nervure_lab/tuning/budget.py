"""The requirements of a stream on a link, and the resulting settings. Bytes, seconds and bit/s throughout.

The formulas are those of "How to Send Large Data in ROS 2" (poster), in one unit: its tool divides
a throughput in bit/s by a payload in bytes and leaves out the utilisation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from nervure_lab.quantities import format_size

IP_AND_UDP_HEADER_BYTES = 28
_BITS = 8


class DoesNotFit(Exception):
    """The stream exceeds the link's capacity; the message has streams that would fit."""


@dataclass(frozen=True)
class Budget:
    """A stream over a link."""

    payload_bytes: int
    rate_hz: float
    bandwidth_bits: float
    """Throughput of the link for this stream, in bit/s."""
    loss: float = 0.0
    """Share of lost packets, 0 to 1."""
    utilisation: float = 0.6
    """Share of the bandwidth that payload may take: 0.6 to 0.7 of it is left after headers, acknowledgements
    and retransmission (poster).
    """
    mtu_bytes: int = 1500
    recovery_seconds: float | None = None
    """Time in which a full history has to drain beside the live stream; None for the poster's formula."""

    @property
    def description(self) -> str:
        return (
            f"{format_size(self.payload_bytes)} at {self.rate_hz:g} Hz over {mbit(self.bandwidth_bits)} with "
            f"{100 * self.loss:g} % loss, utilisation {self.utilisation:g}"
        )

    @property
    def offered_bits(self) -> float:
        """r u: payload in bit/s."""
        return self.rate_hz * self.payload_bytes * _BITS

    @property
    def usable_bits(self) -> float:
        """w T: payload capacity of the link in bit/s."""
        return self.utilisation * self.bandwidth_bits

    @property
    def retransmitted_bits(self) -> float:
        """Payload in bit/s with the retransmissions of lost packets, each of which may be lost again."""
        return self.offered_bits / (1 - self.loss)

    @property
    def fits(self) -> bool:
        """r u < w T."""
        return self.offered_bits < self.usable_bits

    def require_fit(self) -> None:
        """Raises ``DoesNotFit`` with a rate, a payload and a bandwidth of which each would fit."""
        if self.fits:
            return
        payload = (math.ceil(self.usable_bits / _BITS / self.rate_hz / 1000) - 1) * 1000
        lines = [
            f"{format_size(self.payload_bytes)} at {self.rate_hz:g} Hz are {mbit(self.offered_bits)} of "
            f"payload, and a link of {mbit(self.bandwidth_bits)} carries {mbit(self.usable_bits)} at a "
            f"utilisation of {self.utilisation:g}. Each of these would fit:",
            f"  --rate {_below(self.usable_bits / _BITS / self.payload_bytes):g}",
        ]
        if payload > 0:
            lines.append(f"  --payload {payload // 1000}KB")
        megabits = math.floor(self.offered_bits / self.utilisation / 1e6) + 1
        # The quotient may be rounded down to just below a whole number that does not fit.
        megabits += not replace(self, bandwidth_bits=megabits * 1e6).fits
        lines.append(f"  --bandwidth {megabits}Mbps, if there is a faster link")
        raise DoesNotFit("\n".join(lines))

    @property
    def message_bytes(self) -> int:
        """Greatest RTPS message that IP does not fragment."""
        return self.mtu_bytes - IP_AND_UDP_HEADER_BYTES

    @property
    def heartbeat_seconds(self) -> float:
        """1 / (2 r): two requests for missing fragments in each period."""
        return 1 / (2 * self.rate_hz)

    @property
    def history_of_the_poster(self) -> int:
        """N_HC = floor(w T / u): samples that the link carries in a second, at least 1."""
        return max(math.floor(self.usable_bits / _BITS / self.payload_bytes), 1)

    @property
    def history(self) -> int:
        """Samples of the history. With a recovery time D at most D (w T - r u) / u, which drain in D beside
        the live stream.
        """
        if self.recovery_seconds is None:
            return self.history_of_the_poster
        return max(min(self.history_of_the_poster, self._drained(self.recovery_seconds)), 1)

    @property
    def limited_by_recovery(self) -> bool:
        return self.history < self.history_of_the_poster

    def _drained(self, seconds: float) -> int:
        return math.floor(seconds * (self.usable_bits - self.offered_bits) / _BITS / self.payload_bytes)

    @property
    def drain_seconds(self) -> float:
        """Time in which a full history drains beside the live stream, at the chosen utilisation."""
        return self.history * self.payload_bytes * _BITS / (self.usable_bits - self.offered_bits)

    @property
    def history_bytes(self) -> int:
        return self.history * self.payload_bytes


def _below(value: float) -> float:
    """The greatest number below the value with about two digits: strictly, because the stream has to fit."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return (math.ceil(value / step) - 1) * step


def mbit(bits: float) -> str:
    return f"{bits / 1e6:.4g} Mbit/s"
