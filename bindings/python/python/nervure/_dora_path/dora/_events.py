"""Events as dora's dicts."""

from __future__ import annotations

from typing import Any

from dora._metadata import from_nervure


def to_dict(event: Any) -> dict[str, Any] | None:
    """What dora reports of an event; ``None`` for a kind that dora does not have."""
    kind = event.type
    reported: dict[str, Any] = {"kind": "dora", "type": kind}
    if kind == "INPUT":
        reported["id"] = event.id
        reported["value"] = _value(event)
        reported["metadata"] = from_nervure(event)
    elif kind == "INPUT_CLOSED":
        reported["id"] = event["id"]
    elif kind == "STOP":
        reported["id"] = "ALL_INPUTS_CLOSED" if event.reason == "all inputs are closed" else "MANUAL"
    elif kind == "NODE_RESTARTED":
        reported["id"] = event.node
    elif kind == "NODE_FAILED":
        reported["id"] = event.node
        reported["value"] = {
            "source_node_id": event.node,
            "error": event.reason,
            "affected_input_ids": event.inputs,
        }
    elif kind == "PARAM":
        reported |= {"type": "PARAM_UPDATE", "id": event.param, "value": event.value}
    else:
        return None
    return reported


def timed_out() -> dict[str, Any]:
    """The event that a wait returns after its timeout."""
    return {"kind": "dora", "type": "ERROR", "error": "Timeout event stream error: Receiver timed out"}


def _value(event: Any) -> Any:
    value = event.value
    if value is None:
        # A tick.
        import pyarrow as pa

        return pa.nulls(0)
    # A record batch, which dora has as an array of structs.
    return value.to_struct_array() if hasattr(value, "to_struct_array") else value
