//! A hostile peer's schema, head and payload: refused, or a valid value that can be sent on.

use nervure_message::array::Plan;
use nervure_message::{ArraySample, Encode, Head, Layout, Schema, View, decode_head, payload_buffer};

/// See the module.
pub fn run(bytes: &[u8]) {
    let Some(peer) = crate::read::<(&[u8], &[u8], &[u8])>(bytes) else { return };
    let (schema, head, payload) = peer;
    let schema = Schema::decode(schema).ok();
    let Ok((layout, metadata)) = decode_head(head) else { return };
    if let Ok(metadata) = metadata.decode() {
        metadata.write(&mut Head::new()).expect("what was decoded is within the limits");
    }
    let payload = payload_buffer(payload.to_vec());
    let Ok(view) = View::new(&layout, &payload) else { return };
    let _ = view.text();
    let _ = view.as_slice::<f32>();
    let Ok(array) = view.array(schema.as_ref(), &payload) else { return };
    array.validate_full().expect("what was read is valid");

    let (Some(schema), Layout::Array(_)) = (schema, &layout) else { return };
    let sample = ArraySample::new(&array, &schema).expect("what was read can be sent on");
    let mut payload = vec![0; sample.payload_bytes()];
    sample.write(&mut payload);
    let copy = nervure_message::array::read(sample.plan().layout(), &schema, &payload_buffer(payload));
    assert_eq!(copy.expect("what was sent can be read"), array);
    Plan::new(&array.slice(array.len() / 2, array.len() / 4)).expect("so can a part of it");
}
