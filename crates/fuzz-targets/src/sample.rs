//! Schema, head and payload from a malicious peer. They are refused, or become a valid value that
//! can be sent again.

use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};
use nervure_message::array::{ArrayLayout, Plan};
use nervure_message::record::{RecordColumns, RecordPlaces, RecordValue, RecordView};
use nervure_message::{
    ArraySample, Encode, Head, Layout, ReceivedRecord, Schema, TensorColumn, View, decode_head,
    payload_buffer,
};

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Some(peer) = crate::read::<(&[u8], &[u8], &[u8])>(bytes) else {
        return;
    };
    let (schema, head, payload) = peer;
    let schema = Schema::decode(schema).ok();
    let Ok((layout, metadata)) = decode_head(head) else {
        return;
    };
    if let Ok(metadata) = metadata.decode() {
        metadata
            .write(&mut Head::new())
            .expect("decoded metadata must be within the limits");
    }
    let payload = payload_buffer(payload.to_vec());
    if let (Some(schema), Layout::Array(layout)) = (&schema, &layout) {
        record(schema, layout, &payload);
    }
    let Ok(view) = View::new(&layout, &payload) else {
        return;
    };
    let _ = view.text();
    let _ = view.as_slice::<f32>();
    let Ok(array) = view.array(schema.as_ref(), &payload) else {
        return;
    };
    array
        .validate_full()
        .expect("a received array must be valid");

    let (Some(schema), Layout::Array(_)) = (schema, &layout) else {
        return;
    };
    tensors(schema.root(), &array);
    let record = ReceivedRecord::new(array.clone(), schema.clone());
    let _ = record.deserialize::<serde_json::Value>();
    let _ = record.deserialize::<serde::de::IgnoredAny>();
    let sample = ArraySample::new(&array, &schema).expect("a received array must be sendable");
    let mut payload = vec![0; sample.payload_bytes()];
    sample.write(&mut payload);
    let copy =
        nervure_message::array::read(sample.plan().layout(), &schema, &payload_buffer(payload));
    assert_eq!(copy.expect("a sent array must be readable"), array);
    Plan::new(&array.slice(array.len() / 2, array.len() / 4))
        .expect("a slice of a received array must be sendable");
}

/// Reads each value of a record in place.
fn record(schema: &Schema, layout: &ArrayLayout, payload: &[u8]) {
    const MOST_ROWS: usize = 1000;
    let mut places = RecordPlaces::default();
    let Ok(columns) = RecordColumns::new(schema) else {
        return;
    };
    if places.find(&columns, layout, payload.len()).is_err() {
        return;
    }
    let view = RecordView::new(&columns, &places, payload);
    let mut next = vec![0];
    while let Some(column) = next.pop() {
        next.extend(columns.children(column));
        for row in 0..view.length(column).min(MOST_ROWS) {
            match view.value(column, row) {
                Ok(RecordValue::List(items)) => {
                    assert!(items.rows.end <= view.length(items.column))
                }
                Ok(RecordValue::Tensor(layout, bytes)) => {
                    assert_eq!(layout.payload_bytes(), bytes.len());
                }
                _ => {}
            }
        }
    }
}

/// Checks that tensors stay within their elements.
fn tensors(field: &Field, array: &ArrayData) {
    if let Ok(Some(column)) = TensorColumn::new(field, array) {
        for tensor in (0..array.len()).filter_map(|index| column.get(index).ok().flatten()) {
            assert_eq!(tensor.layout.payload_bytes(), tensor.elements.len());
        }
    }
    let children = array.child_data().iter();
    match array.data_type() {
        DataType::Struct(fields) => fields
            .iter()
            .zip(children)
            .for_each(|(field, child)| tensors(field, child)),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            children.for_each(|child| tensors(item, child));
        }
        _ => {}
    }
}
