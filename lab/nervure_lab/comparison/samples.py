"""The messages of a run as a table, which is stored as Parquet; ``lab/schema/samples.md`` describes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nervure_lab.peer_endpoint import PUBLICATION_FIELDS, RECEPTION_FIELDS

SCHEMA: dict[str, Any] = {
    "publisher": pl.Int16,
    "subscriber": pl.Int16,
    "sequence": pl.Int64,
    "warmup": pl.Boolean,
    "due_nanos": pl.Int64,
    "before_nanos": pl.Int64,
    "stamped_nanos": pl.Int64,
    "returned_nanos": pl.Int64,
    "received_nanos": pl.Int64,
    "read_nanos": pl.Int64,
    "arrival": pl.Int64,
    "receptions": pl.Int32,
}
"""One row for each message sent and each subscriber. Times are nanoseconds from the due time of the first
message; ``received_nanos``, ``read_nanos`` and ``arrival`` (position in the order of arrival) are null for a
lost message.
"""


def table_of_logs(
    logs: Mapping[str, bytes],
    start_nanos: int,
    warmup: int,
    subscribers: int,
    *,
    echo: bool,
    warmup_seconds: float | None = None,
) -> pl.DataFrame:
    """Joins the logs of both ends. Messages that arrived but were never sent are an error. The warm-up
    is the first messages, or those of the first seconds.
    """
    parts = []
    for publisher, log in _of_kind(logs, "publications").items():
        sent = _frame(log, PUBLICATION_FIELDS)
        for subscriber, received_log in _of_kind(logs, "receptions").items() or [(0, b"")]:
            parts.append(_joined(sent, _frame(received_log, RECEPTION_FIELDS), publisher, subscriber))
        for subscriber in range(1 if echo else subscribers):
            if subscriber not in (_of_kind(logs, "receptions") or {0: b""}):
                parts.append(_joined(sent, _frame(b"", RECEPTION_FIELDS), publisher, subscriber))
    if not parts:
        return pl.DataFrame(schema=SCHEMA)
    table = pl.concat(parts)
    moved = [pl.col(name) - start_nanos for name in SCHEMA if name.endswith("_nanos")]
    table = table.with_columns(*moved)
    is_first = pl.col("sequence") < warmup
    if warmup_seconds is not None:
        is_first = pl.col("before_nanos") < warmup_seconds * 1e9
    table = table.with_columns(warmup=is_first)
    return table.select([pl.col(name).cast(kind) for name, kind in SCHEMA.items()])


def _of_kind(logs: Mapping[str, bytes], kind: str) -> dict[int, bytes]:
    """By index of the endpoint."""
    return {int(name.rpartition("-")[2]): log for name, log in logs.items() if name.startswith(kind)}


def _frame(log: bytes, fields: tuple[str, ...]) -> pl.DataFrame:
    values = np.frombuffer(log, dtype=np.int64).reshape(-1, len(fields))
    return pl.DataFrame({name: values[:, column].copy() for column, name in enumerate(fields)})


def _joined(sent: pl.DataFrame, received: pl.DataFrame, publisher: int, subscriber: int) -> pl.DataFrame:
    mine = received.filter(pl.col("publisher") == publisher).with_row_index("arrival")
    first = mine.group_by("sequence", maintain_order=True).agg(
        pl.col("received").first().alias("received_nanos"),
        pl.col("read").first().alias("read_nanos"),
        pl.col("arrival").first(),
        pl.len().alias("receptions"),
    )
    unknown = first.join(sent, on="sequence", how="anti")
    if len(unknown):
        raise ValueError(f"subscriber {subscriber} received {len(unknown)} messages that were never sent")
    joined = sent.join(first, on="sequence", how="left", maintain_order="left")
    return joined.select(
        pl.lit(publisher, pl.Int16).alias("publisher"),
        pl.lit(subscriber, pl.Int16).alias("subscriber"),
        "sequence",
        pl.col("due").alias("due_nanos"),
        pl.col("before").alias("before_nanos"),
        pl.col("stamped").alias("stamped_nanos"),
        pl.col("returned").alias("returned_nanos"),
        "received_nanos",
        "read_nanos",
        pl.col("arrival").cast(pl.Int64),
        pl.col("receptions").fill_null(0).cast(pl.Int32),
    )


def write_table(table: pl.DataFrame, file: Path) -> None:
    """Whole or not at all: an interruption, or a full disk, leaves no part of a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    try:
        table.write_parquet(partial, compression="zstd")
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)


def read_table(file: Path) -> pl.DataFrame:
    """Raises ``ValueError`` with the file, and the row where one is wrong."""
    try:
        table = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{file}: not a whole Parquet file ({reason}); remove its run and use --resume"
        ) from error
    if dict(table.schema) != {
        name: kind() if isinstance(kind, type) else kind for name, kind in SCHEMA.items()
    }:
        raise ValueError(f"{file}: expected the columns {', '.join(SCHEMA)}, got {', '.join(table.columns)}")
    wrong = table.with_row_index("row").filter(
        (pl.col("received_nanos") < pl.col("before_nanos"))
        | (pl.col("sequence") < 0)
        | (pl.col("received_nanos").is_null() != (pl.col("receptions") == 0))
    )
    if len(wrong):
        first = wrong.row(0, named=True)
        raise ValueError(
            f"{file}: row {first['row']}: message {first['sequence']} was received at "
            f"{first['received_nanos']} ns ({first['receptions']} times) and sent at "
            f"{first['before_nanos']} ns"
        )
    return table
