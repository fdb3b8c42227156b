//! Messages of Arrow's IPC format around an unchanged payload.
//!
//! The buffers of a payload are in Arrow's order, so the payload can be the body of a record batch.
//! This module writes the FlatBuffers metadata that gives the offset of each buffer. `arrow-ipc`
//! would first need the arrays read and validated, would lay out all buffers again, and brings
//! `arrow-array`, `arrow-select` and `chrono`. Numbers of fields and types are from Arrow's
//! `Schema.fbs` and `Message.fbs` (format version V5).

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit, UnionMode};
use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};
use nervure_message::Schema;
use nervure_message::array::{ArrayLayout, Node, Placement};

type Table = WIPOffset<TableFinishedWIPOffset>;
type Builder = FlatBufferBuilder<'static>;

/// Marks the beginning of an encapsulated message, before the length of its metadata.
const CONTINUATION: u32 = u32::MAX;
const ALIGNMENT: usize = 8;
/// `MetadataVersion.V5`
const METADATA_VERSION: i16 = 4;
/// `MessageHeader.Schema`
const HEADER_SCHEMA: u8 = 1;
/// `MessageHeader.RecordBatch`
const HEADER_RECORD_BATCH: u8 = 3;

/// The schema as an encapsulated message.
pub(crate) fn schema(schema: &Schema) -> Vec<u8> {
    let arrow = schema.to_arrow();
    let mut builder = Builder::new();
    let fields: Vec<Table> = arrow
        .fields()
        .iter()
        .map(|field| put_field(&mut builder, field))
        .collect();
    let fields = builder.create_vector(&fields);
    let metadata = put_metadata(&mut builder, arrow.metadata().iter());
    let start = builder.start_table();
    builder.push_slot_always(slot(1), fields);
    if let Some(metadata) = metadata {
        builder.push_slot_always(slot(2), metadata);
    }
    let schema = builder.end_table(start);
    encapsulated(builder, HEADER_SCHEMA, schema, 0)
}

/// Offsets of the parts of an array; `None` if a record batch cannot hold the array.
pub(crate) fn placement(
    schema: &Schema,
    layout: &ArrayLayout,
    payload_bytes: usize,
) -> Option<Placement> {
    let placement = Placement::new(layout, schema.data_type(), payload_bytes).ok()?;
    // Rows of a record batch are never null.
    let has_null_rows = schema.is_record_batch() && placement.nodes.first()?.validity.is_some();
    (!has_null_rows).then_some(placement)
}

/// The bytes before the body of a record batch. `body_bytes` is the length of the payload and what
/// follows it.
pub(crate) fn before_body(
    schema: &Schema,
    placement: &Placement,
    payload: &[u8],
    body_bytes: usize,
) -> Vec<u8> {
    let Placement {
        nodes,
        buffers,
        view_buffers,
    } = placement;
    let length = nodes[0].length;
    // The columns of a record batch are the arrays of the message. Any other array is its one
    // column.
    let skipped = usize::from(schema.is_record_batch());
    let (nodes, buffers) = (&nodes[skipped..], &buffers[skipped..]);
    let mut builder = Builder::new();
    let nodes = nodes
        .iter()
        .map(|node| [node.length as i64, null_count(node, payload)]);
    let nodes = put_pairs(&mut builder, nodes.collect());
    let buffers = buffers
        .iter()
        .map(|place| [place.start as i64, place.len() as i64]);
    let buffers = put_pairs(&mut builder, buffers.collect());
    let view_buffers: Vec<i64> = view_buffers.iter().map(|&count| count as i64).collect();
    let view_buffers = (!view_buffers.is_empty()).then(|| builder.create_vector(&view_buffers));
    let start = builder.start_table();
    builder.push_slot(slot(0), length as i64, 0);
    builder.push_slot_always(slot(1), nodes);
    builder.push_slot_always(slot(2), buffers);
    if let Some(view_buffers) = view_buffers {
        builder.push_slot_always(slot(4), view_buffers);
    }
    let batch = builder.end_table(start);
    encapsulated(builder, HEADER_RECORD_BATCH, batch, body_bytes)
}

/// A `Message` with its prefix in a stream. The length is a multiple of 8.
fn encapsulated(
    mut builder: Builder,
    header_type: u8,
    header: Table,
    body_bytes: usize,
) -> Vec<u8> {
    let start = builder.start_table();
    builder.push_slot(slot(0), METADATA_VERSION, 0);
    builder.push_slot(slot(1), header_type, 0);
    builder.push_slot_always(slot(2), header);
    builder.push_slot(slot(3), body_bytes as i64, 0);
    let message = builder.end_table(start);
    builder.finish_minimal(message);
    let metadata = builder.finished_data();
    let padded = metadata.len().next_multiple_of(ALIGNMENT);
    let mut out = Vec::with_capacity(8 + padded);
    out.extend_from_slice(&CONTINUATION.to_le_bytes());
    out.extend_from_slice(&(padded as u32).to_le_bytes());
    out.extend_from_slice(metadata);
    out.resize(8 + padded, 0);
    out
}

/// Offset of a table's field in its vtable.
const fn slot(field: VOffsetT) -> VOffsetT {
    4 + 2 * field
}

/// A vector of structs of two longs.
fn put_pairs(
    builder: &mut Builder,
    pairs: Vec<[i64; 2]>,
) -> WIPOffset<flatbuffers::Vector<'static, i64>> {
    builder.start_vector::<i64>(2 * pairs.len());
    // FlatBuffers are built from back to front.
    for [first, second] in pairs.iter().rev() {
        builder.push(*second);
        builder.push(*first);
    }
    builder.end_vector(pairs.len())
}

fn null_count(node: &Node, payload: &[u8]) -> i64 {
    let Some(place) = &node.validity else {
        return if node.is_null { node.length as i64 } else { 0 };
    };
    let bitmap = &payload[place.clone()];
    let (whole, rest) = (node.length / 8, node.length % 8);
    let mut valid: u64 = bitmap[..whole]
        .iter()
        .map(|byte| u64::from(byte.count_ones()))
        .sum();
    if rest > 0 {
        valid += u64::from((bitmap[whole] & ((1 << rest) - 1)).count_ones());
    }
    node.length as i64 - valid as i64
}

fn put_field(builder: &mut Builder, field: &Field) -> Table {
    let name = builder.create_string(field.name());
    let children: Vec<Table> = match field.data_type() {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![put_field(builder, item)],
        DataType::Struct(fields) => fields
            .iter()
            .map(|field| put_field(builder, field))
            .collect(),
        DataType::Union(fields, _) => fields
            .iter()
            .map(|(_, field)| put_field(builder, field))
            .collect(),
        DataType::RunEndEncoded(run_ends, values) => [run_ends, values]
            .map(|field| put_field(builder, field))
            .into(),
        _ => Vec::new(),
    };
    let children = builder.create_vector(&children);
    let (type_code, data_type) = put_type(builder, field.data_type());
    let metadata = put_metadata(builder, field.metadata().iter());
    let start = builder.start_table();
    builder.push_slot_always(slot(0), name);
    builder.push_slot(slot(1), field.is_nullable(), false);
    builder.push_slot(slot(2), type_code, 0);
    builder.push_slot_always(slot(3), data_type);
    builder.push_slot_always(slot(5), children);
    if let Some(metadata) = metadata {
        builder.push_slot_always(slot(6), metadata);
    }
    builder.end_table(start)
}

fn put_metadata<'m, K: AsRef<str> + 'm, V: AsRef<str> + 'm>(
    builder: &mut Builder,
    entries: impl Iterator<Item = (K, V)>,
) -> Option<
    WIPOffset<flatbuffers::Vector<'static, flatbuffers::ForwardsUOffset<TableFinishedWIPOffset>>>,
> {
    let mut tables = Vec::new();
    for (key, value) in entries {
        let key = builder.create_string(key.as_ref());
        let value = builder.create_string(value.as_ref());
        let start = builder.start_table();
        builder.push_slot_always(slot(0), key);
        builder.push_slot_always(slot(1), value);
        tables.push(builder.end_table(start));
    }
    (!tables.is_empty()).then(|| builder.create_vector(&tables))
}

/// A type's code in the union `Type`, and its table. Values equal to FlatBuffers' defaults are
/// written too.
fn put_type(builder: &mut Builder, data_type: &DataType) -> (u8, Table) {
    use DataType::*;
    let zone = match data_type {
        Timestamp(_, Some(zone)) => Some(builder.create_string(zone)),
        _ => None,
    };
    let type_ids = match data_type {
        Union(fields, _) => {
            let type_ids: Vec<i32> = fields.iter().map(|(type_id, _)| type_id.into()).collect();
            Some(builder.create_vector(&type_ids))
        }
        _ => None,
    };
    let start = builder.start_table();
    let code = match data_type {
        Null => 1,
        Int8 => put_integer(builder, 8, true),
        Int16 => put_integer(builder, 16, true),
        Int32 => put_integer(builder, 32, true),
        Int64 => put_integer(builder, 64, true),
        UInt8 => put_integer(builder, 8, false),
        UInt16 => put_integer(builder, 16, false),
        UInt32 => put_integer(builder, 32, false),
        UInt64 => put_integer(builder, 64, false),
        Float16 => put_short(builder, 0, 3),
        Float32 => put_short(builder, 1, 3),
        Float64 => put_short(builder, 2, 3),
        Binary => 4,
        Utf8 => 5,
        Boolean => 6,
        Decimal32(precision, scale) => put_decimal(builder, *precision, *scale, 32),
        Decimal64(precision, scale) => put_decimal(builder, *precision, *scale, 64),
        Decimal128(precision, scale) => put_decimal(builder, *precision, *scale, 128),
        Decimal256(precision, scale) => put_decimal(builder, *precision, *scale, 256),
        Date32 => put_short(builder, 0, 8),
        Date64 => put_short(builder, 1, 8),
        Time32(unit) => put_time(builder, *unit, 32),
        Time64(unit) => put_time(builder, *unit, 64),
        Timestamp(unit, _) => {
            if let Some(zone) = zone {
                builder.push_slot_always(slot(1), zone);
            }
            put_short(builder, unit_code(*unit), 10)
        }
        Interval(IntervalUnit::YearMonth) => put_short(builder, 0, 11),
        Interval(IntervalUnit::DayTime) => put_short(builder, 1, 11),
        Interval(IntervalUnit::MonthDayNano) => put_short(builder, 2, 11),
        List(_) => 12,
        Struct(_) => 13,
        Union(_, mode) => {
            if let Some(type_ids) = type_ids {
                builder.push_slot_always(slot(1), type_ids);
            }
            put_short(builder, i16::from(*mode == UnionMode::Dense), 14)
        }
        FixedSizeBinary(bytes) => put_int(builder, *bytes, 15),
        FixedSizeList(_, size) => put_int(builder, *size, 16),
        Map(_, is_sorted) => {
            builder.push_slot_always(slot(0), *is_sorted);
            17
        }
        Duration(unit) => put_short(builder, unit_code(*unit), 18),
        LargeBinary => 19,
        LargeUtf8 => 20,
        LargeList(_) => 21,
        RunEndEncoded(..) => 22,
        BinaryView => 23,
        Utf8View => 24,
        ListView(_) => 25,
        LargeListView(_) => 26,
        // Unreachable: an array with a dictionary has no placement.
        Dictionary(..) => 0,
    };
    (code, builder.end_table(start))
}

fn put_integer(builder: &mut Builder, bits: i32, is_signed: bool) -> u8 {
    builder.push_slot_always(slot(0), bits);
    builder.push_slot_always(slot(1), is_signed);
    2
}

fn put_decimal(builder: &mut Builder, precision: u8, scale: i8, bits: i32) -> u8 {
    builder.push_slot_always(slot(0), i32::from(precision));
    builder.push_slot_always(slot(1), i32::from(scale));
    builder.push_slot_always(slot(2), bits);
    7
}

fn put_time(builder: &mut Builder, unit: TimeUnit, bits: i32) -> u8 {
    builder.push_slot_always(slot(1), bits);
    put_short(builder, unit_code(unit), 9)
}

/// The first field of a type's table.
fn put_short(builder: &mut Builder, value: i16, type_code: u8) -> u8 {
    builder.push_slot_always(slot(0), value);
    type_code
}

fn put_int(builder: &mut Builder, value: i32, type_code: u8) -> u8 {
    builder.push_slot_always(slot(0), value);
    type_code
}

fn unit_code(unit: TimeUnit) -> i16 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}
