"""Zenoh, from PyPI and crates.io: two peers that are connected directly, or two clients of a router. The
endpoint in Rust is ``lab/programs/zenoh``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import HOST, LINK, PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

_BOTH = frozenset({HOST, LINK})
_DOCUMENTED = "DEFAULT_CONFIG.json5 of Zenoh"
_COMMON = (
    "Direct connection, multicast scouting off. Reliable streams have congestion control BLOCK, which is how "
    "its documentation makes them lossless; the others DROP, the default of publications."
)
_RUST = {"language": "Rust", "copies_in_send": False}
_IN_RUST = (
    "with endpoints in Rust: a message is written into a vector of its own, and received from the channel of "
    "the subscriber, the default of this API."
)


class Zenoh(Peer):
    name = "zenoh"
    title = "Zenoh"
    without_types = "payloads are bytes; `zenoh.ext` serialises values, but declares no types"
    requirements = ("eclipse-zenoh==1.10.2",)
    packages = ("eclipse-zenoh",)
    configurations = (
        Configuration(
            "tcp", f"TCP (Cubic), shared memory off. {_COMMON}", _DOCUMENTED, _BOTH, {"scheme": "tcp"}
        ),
        Configuration("udp", f"UDP, shared memory off. {_COMMON}", _DOCUMENTED, _BOTH, {"scheme": "udp"}),
        Configuration(
            "quic",
            f"QUIC with TLS, encrypted. {_COMMON}",
            _DOCUMENTED,
            _BOTH,
            {"scheme": "quic", "encrypted": True},
        ),
        Configuration(
            "router",
            "A router on the subscriber's host, whose two clients are the ends. TCP (Cubic), shared memory "
            "off, multicast scouting off. Reliable streams have congestion control BLOCK, the others DROP.",
            _DOCUMENTED,
            frozenset({LINK}),
            {"scheme": "tcp", "router": True},
        ),
        Configuration(
            "shm",
            f"TCP and shared memory: payloads of 3 KiB and more go through it. {_COMMON}",
            "DEFAULT_CONFIG.json5, transport/shared_memory",
            frozenset({HOST}),
            {"scheme": "tcp", "shm": True},
        ),
        *(
            Configuration(
                f"rust-{scheme}",
                f"As `{scheme}`, {_IN_RUST}",
                _DOCUMENTED,
                _BOTH,
                _RUST | {"encrypted": scheme == "quic"},
            )
            for scheme in ("tcp", "udp", "quic")
        ),
        Configuration(
            "rust-shm",
            "As `shm`, with endpoints in Rust: a message is written into shared memory that the publisher "
            "has allocated, and received from the channel of the subscriber, the default of this API.",
            "zenoh::shm, ShmProvider; DEFAULT_CONFIG.json5, transport/shared_memory",
            values=_RUST,
        ),
        Configuration(
            "session",
            "Both ends in one session, which hands messages over without a transport. No scouting; "
            "congestion control as in the others.",
            "defaults",
            frozenset({PROCESS}),
        ),
    )
    _session: Any = None
    _program: Path | None = None

    def prepare_configuration(self, toolchain: Toolchain, configuration: str) -> None:
        if configuration.startswith("rust-"):
            self._program = toolchain.rust_program("nervure-lab-zenoh")

    def versions(self) -> dict[str, str]:
        from nervure_lab.toolchain import crate_versions

        return super().versions() | (crate_versions(["zenoh"]) if self._program else {})

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        import zenoh

        control = zenoh.CongestionControl.BLOCK if wiring.reliable else zenoh.CongestionControl.DROP
        session = self._session_of(wiring)
        return _ZenohPublisher(session.declare_publisher(f"lab/{topic}", congestion_control=control))

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        session = self._session_of(wiring)
        # bytes(payload) is the copy that every reader of a payload makes in this API.
        return _ZenohSubscriber(
            session.declare_subscriber(f"lab/{topic}", lambda sample: on_message(bytes(sample.payload)))
        )

    def launch(self, launch: Launch) -> None:
        if launch.configuration in ("quic", "rust-quic"):
            _make_certificate(launch)
        if launch.configuration.startswith("rust-"):
            assert self._program is not None
            launch.spawn_all([self._program])
        else:
            super().launch(launch)

    def _session_of(self, wiring: Wiring) -> Any:
        if self._session is None:
            import zenoh

            if wiring.listens and self.configuration(wiring.configuration).values.get("router"):
                _start_router(wiring)
            self._session = zenoh.open(
                _configuration(zenoh, wiring, self.configuration(wiring.configuration))
            )
        return self._session


def _configuration(zenoh: Any, wiring: Wiring, chosen: Configuration) -> Any:
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "true" if chosen.values.get("shm") else "false")
    if wiring.place == PROCESS:
        config.insert_json5("listen/endpoints", "[]")
        return config
    endpoint = f'["{chosen.values["scheme"]}/{wiring.address}:{wiring.port}"]'
    is_client = bool(chosen.values.get("router"))
    if is_client:
        config.insert_json5("mode", '"client"')
    config.insert_json5("listen/endpoints", endpoint if wiring.listens and not is_client else "[]")
    if is_client or not wiring.listens:
        config.insert_json5("connect/endpoints", endpoint)
        # By default a session gives up after the first failed attempt.
        config.insert_json5("connect/timeout_ms", "10000")
        config.insert_json5("connect/exit_on_failure", "false")
    if chosen.values["scheme"] == "quic":
        tls = "transport/link/tls"
        config.insert_json5(f"{tls}/root_ca_certificate", f'"{wiring.directory}/authority.pem"')
        config.insert_json5(f"{tls}/listen_certificate", f'"{wiring.directory}/certificate.pem"')
        config.insert_json5(f"{tls}/listen_private_key", f'"{wiring.directory}/key.pem"')
        config.insert_json5(f"{tls}/verify_name_on_connect", "false")
    return config


_ROUTER = """
import ctypes, signal, sys, threading, zenoh
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # It ends with the endpoint.
config = zenoh.Config()
config.insert_json5("mode", '"router"')
config.insert_json5("scouting/multicast/enabled", "false")
config.insert_json5("transport/shared_memory/enabled", "false")
config.insert_json5("listen/endpoints", sys.argv[1])
router = zenoh.open(config)
threading.Event().wait()
"""


def _start_router(wiring: Wiring) -> None:
    """Starts an equivalent of `zenohd`: a session in the mode `router`, in a process of its own."""
    endpoint = f'["tcp/{wiring.address}:{wiring.port}"]'
    subprocess.Popen([sys.executable, "-c", _ROUTER, endpoint], stdin=subprocess.DEVNULL)


def _make_certificate(launch: Launch) -> None:
    from nervure_lab.contract import Unavailable

    if shutil.which("openssl") is None:
        raise Unavailable("QUIC needs a certificate and `openssl` is not installed")
    directory = Path(launch.directory)
    extensions = directory / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1,IP:10.77.0.1\nbasicConstraints=CA:FALSE\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # An authority and a leaf: TLS libraries refuse an authority's own certificate as a server's.
    authority = ["req", "-x509", *key, "-days", "2", "-subj", "/CN=lab authority"]
    authority += ["-keyout", "authority-key.pem", "-out", "authority.pem"]
    request = ["req", "-new", *key, "-subj", "/CN=lab", "-keyout", "key.pem", "-out", "request.pem"]
    sign = ["x509", "-req", "-in", "request.pem", "-CA", "authority.pem", "-CAkey", "authority-key.pem"]
    sign += ["-CAcreateserial", "-days", "2", "-extfile", "extensions", "-out", "certificate.pem"]
    for words in (authority, request, sign):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=directory)


class _ZenohPublisher:
    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        self._publisher.put(bytes(source))


class _ZenohSubscriber:
    """The session's own thread delivers."""

    def __init__(self, subscriber: Any) -> None:
        self._subscriber = subscriber

    def spin(self, timeout_seconds: float) -> None:
        time.sleep(timeout_seconds)


PEER = Zenoh()
