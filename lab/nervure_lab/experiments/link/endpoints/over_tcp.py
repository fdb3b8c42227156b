"""Samples in sequence over one TCP connection; the sender keeps the last ten that wait."""

import collections
import contextlib
import socket
import struct
import sys
import threading

from nervure_lab.experiments.link.endpoint import CONNECT_SECONDS, Receptions, Run

LENGTH = struct.Struct("<I")
ADDRESS = ("10.77.0.1", 7447)
KEPT = 10


def send(run: Run) -> None:
    waiting: collections.deque[bytes] = collections.deque(maxlen=KEPT)
    news = threading.Condition()

    connected = threading.Event()

    def write() -> None:
        link = connect()
        connected.set()
        # The receiver may end first.
        with contextlib.suppress(ConnectionError):
            while True:
                with news:
                    news.wait_for(lambda: bool(waiting))
                    sample = waiting.popleft()
                link.sendall(LENGTH.pack(len(sample)) + sample)

    def publish(sample: bytes) -> None:
        with news:
            waiting.append(sample)
            news.notify()

    # In a thread, so that a stalled connection delays neither the schedule nor the end.
    threading.Thread(target=write, daemon=True).start()
    connected.wait(CONNECT_SECONDS)
    run.ready()
    run.send_all(publish)


def connect() -> socket.socket:
    while True:
        try:
            link = socket.create_connection(ADDRESS, timeout=30)
        except OSError:
            continue
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(None)
        return link


def receive(run: Run) -> None:
    listener = socket.create_server(ADDRESS)
    receptions = Receptions(run)
    run.ready()
    try:
        listener.settimeout(receptions.seconds_left)
        link, _ = listener.accept()
        while receptions.seconds_left:
            (length,) = LENGTH.unpack(read_exactly(link, LENGTH.size, receptions))
            receptions.add(read_exactly(link, length, receptions))
    except (TimeoutError, ConnectionError):
        pass
    receptions.report()


def read_exactly(link: socket.socket, length: int, receptions: Receptions) -> memoryview:
    buffer = memoryview(bytearray(length))
    have = 0
    while have < length:
        link.settimeout(max(receptions.seconds_left, 1e-3))
        got = link.recv_into(buffer[have:])
        if got == 0:
            raise ConnectionError("closed")
        have += got
    return buffer


{"send": send, "receive": receive}[sys.argv[1]](Run())
