"""Conversions of Arrow values that are simpler in Python than in Rust. Imported, with pyarrow, when first
needed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from nervure.errors import NotSendable, SampleError


def in_one_piece(value: Any) -> Any:
    """Combines a chunked array, table or other stream of Arrow data into one array or record batch."""
    if not isinstance(value, (pa.Table, pa.ChunkedArray)):
        value = _collected(value)
    if isinstance(value, pa.ChunkedArray):
        combined = value.combine_chunks()
        if isinstance(combined, pa.ChunkedArray):
            raise NotSendable(f"the chunked array of {len(value)} elements does not fit one Arrow array")
        return combined
    batches = value.combine_chunks().to_batches()
    if len(batches) > 1:
        raise NotSendable(f"the table of {value.num_rows} rows does not fit one record batch")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=value.schema)


def to_numpy(value: Any) -> Any:
    """The elements as a NumPy array, copied where Arrow stores them differently."""
    if isinstance(value, pa.RecordBatch):
        raise SampleError("a record batch is not an array: use event.value, e.g. event.value.to_pandas()")
    return value.to_numpy(zero_copy_only=False)


def _collected(value: Any) -> Any:
    try:
        reader = pa.RecordBatchReader.from_stream(value)
    except pa.ArrowException:
        return pa.chunked_array(value)
    return reader.read_all()
