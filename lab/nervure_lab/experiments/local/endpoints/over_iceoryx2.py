"""Endpoint over iceoryx2's Python package; ``lab/programs/iceoryx2`` is the same in Rust."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import iceoryx2 as iox2
import numpy

from nervure_lab.endpoint import Endpoint
from nervure_lab.experiments.local.endpoint import Consumer, Stamp, now_nanos, produce


def main() -> None:
    iox2.set_log_level(iox2.LogLevel.Error)
    endpoint = Endpoint()
    case = endpoint.case
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    name = iox2.ServiceName.new(case.run_name)
    event = node.service_builder(name).event().open_or_create()
    data = (
        node.service_builder(name)
        # Bytes, not words: 0.10.0 returns the length of a slice of wider elements in bytes.
        .publish_subscribe(iox2.Slice[ctypes.c_uint8])
        .payload_alignment(iox2.Alignment.new(64))
        .max_subscribers(case.consumers)
        .max_publishers(1)
        .subscriber_max_buffer_size(case.queue_depth)
        .enable_safe_overflow(case.mode == "paced")
        .open_or_create()
    )
    if case.role == "producer":
        publisher = data.publisher_builder().initial_max_slice_len(case.payload_bytes).create()
        notifier = event.notifier_builder().create()
        wait_until(lambda: data.dynamic_config.number_of_subscribers == case.consumers)
        publisher.update_connections()

        def publish(source: numpy.ndarray, stamp: Stamp) -> None:
            sample = publisher.loan_slice_uninit(source.nbytes)
            memory = numpy.frombuffer(sample.payload().as_memory_view(), dtype=numpy.uint64)
            memory[:] = source
            stamp(memory)
            sample.assume_init().send()
            notifier.notify()

        produce(endpoint, publish)
        return
    subscriber = data.subscriber_builder().create()
    listener = event.listener_builder().create()
    wait_until(lambda: data.dynamic_config.number_of_publishers == 1)
    subscriber.receive()
    consumer = Consumer(endpoint)
    while not consumer.finished:
        listener.blocking_wait()
        while (sample := subscriber.receive()) is not None:
            received_at_nanos = now_nanos()
            consumer.observe(received_at_nanos, sample.payload().as_memory_view())
            sample.delete()
    consumer.report()


def wait_until(is_connected: Callable[[], bool]) -> None:
    """Waits until both ends are connected: before that, samples that overflow are dropped."""
    while not is_connected():
        time.sleep(0.001)


main()
