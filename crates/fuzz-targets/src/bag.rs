//! ROS 2 messages from a bag. Any definition and message is decoded or refused, and decoding takes
//! at most a small multiple of the message's length in memory.

use std::sync::Arc;

use nervure_message::{Encode, View};
use nervure_recorder::{Channel, Message, SampleChannel};

const LINE: &str = "\n===\nMSG: ";

/// The types that are decoded specially, and a type with every kind of field.
fn definitions() -> [(&'static str, String); 5] {
    let header = format!(
        "{LINE}std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id{LINE}builtin_interfaces/Time\nint32 sec\nuint32 nanosec"
    );
    [
        (
            "sensor_msgs/msg/Image",
            format!(
                "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data{header}"
            ),
        ),
        (
            "sensor_msgs/msg/CompressedImage",
            format!("std_msgs/Header header\nstring format\nuint8[] data{header}"),
        ),
        (
            "sensor_msgs/msg/PointCloud2",
            format!(
                "std_msgs/Header header\nuint32 height\nuint32 width\nPointField[] fields\nbool is_bigendian\nuint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense{header}{LINE}sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\nuint32 count"
            ),
        ),
        ("a/msg/Text", "string data".to_owned()),
        (
            "a/msg/Mixed",
            format!(
                "bool on\nint8 a\nstring[] names\nfloat64[3] xyz\nPart[] parts\nPart[2] pair\nEmpty[] empty{LINE}a/Part\nuint16[] values\nstring label{LINE}a/Empty"
            ),
        ),
    ]
}

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Some(input) = crate::read::<(u8, &[u8], &[u8])>(bytes) else {
        return;
    };
    let (which, definition, data) = input;
    let known = definitions();
    // A definition from the input, or one of the above.
    let (name, definition) = match known.get(usize::from(which % 8)) {
        Some((name, text)) => (*name, text.as_bytes()),
        None => ("a/msg/B", definition),
    };
    let channel = Arc::new(Channel {
        topic: "/topic".to_owned(),
        message_encoding: if which & 32 == 0 { "cdr" } else { "json" }.to_owned(),
        schema_name: name.to_owned(),
        schema_encoding: if which & 16 == 0 {
            "ros2msg"
        } else {
            "ros2idl"
        }
        .to_owned(),
        schema: definition.into(),
        metadata: Default::default(),
    });
    let Ok(samples) = SampleChannel::new(&channel) else {
        return;
    };
    let encoding: &[u8] = if which & 8 == 0 {
        &[0, 1, 0, 0]
    } else {
        &[0, 0, 0, 0]
    };
    let message = Message {
        channel,
        sequence: 1,
        log_time: 2,
        set_back: 0,
        data: [encoding, data].concat(),
    };
    let Ok(sample) = samples.sample(&message) else {
        return;
    };
    let mut payload = vec![0; sample.payload_bytes()];
    sample.write(&mut payload);
    View::new(&sample.layout(), &payload).expect("a sample that was sent must be readable");
}
