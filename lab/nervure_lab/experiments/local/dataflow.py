"""Dataflow files of the peers that run some: a producer and its consumers."""

from __future__ import annotations

import json
from typing import Any

from nervure_lab.experiments.local.session import Session


def write_dataflow(
    session: Session,
    node_keys: dict[str, Any],
    input_keys: dict[str, Any],
    producer_keys: dict[str, Any] | None = None,
) -> str:
    """Writes a file with these keys of every node, of every input, and of the producer; returns its path."""
    case = session.case
    producer = {
        "id": "producer",
        "outputs": ["out"],
        "env": session.environment("producer"),
        **node_keys,
        **(producer_keys or {}),
    }
    source = {"source": "producer/out", "queue_size": case.queue_depth, **input_keys}
    consumers = [
        {
            "id": f"consumer-{index}",
            "inputs": {"in": source},
            "env": session.environment("consumer", index),
            **node_keys,
        }
        for index in range(case.consumers)
    ]
    return write_nodes(session, [producer, *consumers])


def write_nodes(session: Session, nodes: list[dict[str, Any]]) -> str:
    file = session.directory / "dataflow.yml"
    file.write_text(json.dumps({"nodes": nodes}))  # JSON is YAML.
    return str(file)
