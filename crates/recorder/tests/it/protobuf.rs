//! Messages in protobuf, as Foxglove and others write them.

use std::sync::Arc;

use nervure_message::{Encode, Layout, ReceivedRecord, View, payload_buffer};
use nervure_recorder::{Channel, Message, RecordedSample, SampleChannel};
use proptest::prelude::*;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MessageOptions,
};
use prost_reflect::{DescriptorPool, DynamicMessage, MapKey, Value};
use serde_json::json;

fn field(name: &str, number: i32, kind: Type, of: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        r#type: Some(kind.into()),
        label: Some(Label::Optional.into()),
        type_name: (!of.is_empty()).then(|| of.to_owned()),
        ..FieldDescriptorProto::default()
    }
}

fn repeated(name: &str, number: i32, kind: Type, of: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated.into()),
        ..field(name, number, kind, of)
    }
}

fn message(name: &str, fields: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields,
        ..DescriptorProto::default()
    }
}

fn file(package: &str, messages: Vec<DescriptorProto>) -> FileDescriptorSet {
    let value = |name: &str, number| EnumValueDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        options: None,
    };
    FileDescriptorSet {
        file: vec![FileDescriptorProto {
            name: Some("test.proto".to_owned()),
            package: Some(package.to_owned()),
            syntax: Some("proto3".to_owned()),
            message_type: messages,
            enum_type: vec![EnumDescriptorProto {
                name: Some("Mode".to_owned()),
                value: vec![value("IDLE", 0), value("DRIVE", 1)],
                ..EnumDescriptorProto::default()
            }],
            ..FileDescriptorProto::default()
        }],
    }
}

fn channel(name: &str, definition: &FileDescriptorSet) -> Channel {
    Channel {
        message_encoding: "protobuf".to_owned(),
        schema_encoding: "protobuf".to_owned(),
        schema_name: name.to_owned(),
        schema: definition.encode_to_vec().into(),
        topic: "/topic".to_owned(),
        metadata: Default::default(),
    }
}

fn recorded(channel: &Channel, data: Vec<u8>) -> Message {
    Message {
        channel: Arc::new(channel.clone()),
        sequence: 1,
        log_time: 11,
        set_back: 0,
        data,
    }
}

/// A message with a field of each kind, which contains another.
fn state() -> FileDescriptorSet {
    let mut state = message(
        "State",
        vec![
            field("on", 1, Type::Bool, ""),
            field("level", 2, Type::Double, ""),
            field("name", 3, Type::String, ""),
            field("mode", 4, Type::Enum, ".robot.Mode"),
            field("pose", 5, Type::Message, ".robot.Pose"),
            field("goal", 6, Type::Message, ".robot.Pose"),
            repeated("path", 7, Type::Message, ".robot.Pose"),
            repeated("counts", 8, Type::Uint64, ""),
            repeated("limits", 9, Type::Message, ".robot.State.LimitsEntry"),
            repeated("modes", 10, Type::Enum, ".robot.Mode"),
        ],
    );
    let mut entry = message(
        "LimitsEntry",
        vec![
            field("key", 1, Type::String, ""),
            field("value", 2, Type::Float, ""),
        ],
    );
    entry.options = Some(MessageOptions {
        map_entry: Some(true),
        ..MessageOptions::default()
    });
    state.nested_type = vec![entry];
    let pose = message(
        "Pose",
        vec![
            field("x", 1, Type::Sint32, ""),
            field("y", 2, Type::Int64, ""),
        ],
    );
    file("robot", vec![state, pose])
}

fn value_of(sample: &RecordedSample<'_>) -> serde_json::Value {
    let (layout, payload) = (sample.layout(), sample.payload().to_vec());
    let schema = sample.schema().unwrap();
    let array = View::new(&layout, &payload)
        .unwrap()
        .array(Some(schema), &payload_buffer(payload.clone()))
        .unwrap();
    let record = ReceivedRecord::new(array, schema.clone());
    let mut rows: Vec<serde_json::Value> = record.deserialize().unwrap();
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

#[test]
fn a_message_becomes_a_struct_with_its_names_and_nesting() {
    let definition = state();
    let pool = DescriptorPool::decode(definition.encode_to_vec().as_slice()).unwrap();
    let descriptor = |name: &str| pool.get_message_by_name(name).unwrap();
    let pose = |x, y| {
        let mut pose = DynamicMessage::new(descriptor("robot.Pose"));
        pose.set_field_by_name("x", Value::I32(x));
        pose.set_field_by_name("y", Value::I64(y));
        Value::Message(pose)
    };
    let mut whole = DynamicMessage::new(descriptor("robot.State"));
    let limits = [("low", -1.5), ("high", 2.5)];
    let limits = limits.map(|(key, value)| (MapKey::String(key.to_owned()), Value::F32(value)));
    for (name, value) in [
        ("on", Value::Bool(true)),
        ("level", Value::F64(f64::INFINITY)),
        ("name", Value::String("grüß".to_owned())),
        ("mode", Value::EnumNumber(1)),
        ("pose", pose(-3, 1 << 40)),
        ("path", Value::List(vec![pose(1, 2), pose(3, 4)])),
        (
            "counts",
            Value::List(vec![Value::U64(u64::MAX), Value::U64(0)]),
        ),
        ("limits", Value::Map(limits.into_iter().collect())),
        (
            "modes",
            Value::List(vec![Value::EnumNumber(0), Value::EnumNumber(7)]),
        ),
    ] {
        whole.set_field_by_name(name, value);
    }
    let channel = channel("robot.State", &definition);
    let samples = SampleChannel::new(&channel).unwrap();
    let message = recorded(&channel, whole.encode_to_vec());
    let sample = samples.sample(&message).unwrap();
    let expected = json!({
        "on": true,
        // JSON has no infinity.
        "level": null,
        "name": "grüß",
        "mode": "DRIVE",
        "pose": {"x": -3, "y": 1_u64 << 40},
        "goal": null,
        "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}],
        "counts": [u64::MAX, 0],
        "limits": [{"key": "high", "value": 2.5}, {"key": "low", "value": -1.5}],
        "modes": ["IDLE", "7"],
    });
    assert_eq!(value_of(&sample), expected);
    assert_eq!(sample.header().stamp, 11);
    // Fields without a value have their defaults, and absent messages are null.
    let empty = recorded(&channel, Vec::new());
    let value = value_of(&samples.sample(&empty).unwrap());
    assert_eq!(
        (&value["on"], &value["mode"], &value["pose"]),
        (&json!(false), &json!("IDLE"), &json!(null))
    );
}

#[test]
fn images_and_clouds_of_foxglove_are_tensors() {
    let time = message(
        "Time",
        vec![
            field("seconds", 1, Type::Int64, ""),
            field("nanos", 2, Type::Int32, ""),
        ],
    );
    let element = message(
        "PackedElementField",
        vec![
            field("name", 1, Type::String, ""),
            field("offset", 2, Type::Fixed32, ""),
            field("type", 3, Type::Enum, ".foxglove.Mode"),
        ],
    );
    let common = || {
        vec![
            field("timestamp", 1, Type::Message, ".foxglove.Time"),
            field("frame_id", 2, Type::String, ""),
        ]
    };
    let image = message(
        "RawImage",
        [
            common(),
            vec![
                field("width", 3, Type::Fixed32, ""),
                field("height", 4, Type::Fixed32, ""),
                field("encoding", 5, Type::String, ""),
                field("step", 6, Type::Fixed32, ""),
                field("data", 7, Type::Bytes, ""),
            ],
        ]
        .concat(),
    );
    let cloud = message(
        "PointCloud",
        [
            common(),
            vec![
                field("point_stride", 4, Type::Fixed32, ""),
                repeated("fields", 5, Type::Message, ".foxglove.PackedElementField"),
                field("data", 6, Type::Bytes, ""),
            ],
        ]
        .concat(),
    );
    let definition = file("foxglove", vec![time, element, image, cloud]);
    let pool = DescriptorPool::decode(definition.encode_to_vec().as_slice()).unwrap();
    let filled = |name: &str, values: Vec<(&str, Value)>| {
        let mut message = DynamicMessage::new(pool.get_message_by_name(name).unwrap());
        for (name, value) in values {
            message.set_field_by_name(name, value);
        }
        message
    };
    let stamped = |name: &str, mut values: Vec<(&str, Value)>| {
        let time = filled(
            "foxglove.Time",
            vec![("seconds", Value::I64(5)), ("nanos", Value::I32(7))],
        );
        values.extend([
            ("timestamp", Value::Message(time)),
            ("frame_id", Value::String("lens".to_owned())),
        ]);
        filled(name, values).encode_to_vec()
    };
    let bytes = |range: std::ops::Range<u8>| Value::Bytes(range.collect::<Vec<u8>>().into());
    let images = channel("foxglove.RawImage", &definition);
    let samples = SampleChannel::new(&images).unwrap();
    let picture = |data| {
        recorded(
            &images,
            stamped(
                "foxglove.RawImage",
                vec![
                    ("width", Value::U32(2)),
                    ("height", Value::U32(2)),
                    ("encoding", Value::String("rgb8".to_owned())),
                    ("step", Value::U32(6)),
                    ("data", data),
                ],
            ),
        )
    };
    let message = picture(bytes(0..12));
    let sample = samples.sample(&message).unwrap();
    let Layout::Tensor(layout) = sample.layout() else {
        panic!("{:?}", sample.layout())
    };
    assert_eq!(
        (layout.shape(), sample.payload().len()),
        (&[2, 2, 3][..], 12)
    );
    assert_eq!(
        (sample.header().stamp, sample.frame()),
        (5_000_000_007, Some("lens"))
    );
    let error = samples
        .sample(&picture(bytes(0..11)))
        .unwrap_err()
        .to_string();
    assert!(error.contains("it has 11 bytes of 12"), "{error}");

    let clouds = channel("foxglove.PointCloud", &definition);
    let samples = SampleChannel::new(&clouds).unwrap();
    let element = |name: &str, offset| {
        let code = Value::EnumNumber(7);
        Value::Message(filled(
            "foxglove.PackedElementField",
            vec![
                ("name", Value::String(name.to_owned())),
                ("offset", Value::U32(offset)),
                ("type", code),
            ],
        ))
    };
    let message = recorded(
        &clouds,
        stamped(
            "foxglove.PointCloud",
            vec![
                ("point_stride", Value::U32(8)),
                (
                    "fields",
                    Value::List(vec![element("x", 0), element("y", 4)]),
                ),
                ("data", bytes(0..24)),
            ],
        ),
    );
    let sample = samples.sample(&message).unwrap();
    let Layout::Tensor(layout) = sample.layout() else {
        panic!("{:?}", sample.layout())
    };
    assert_eq!((layout.shape(), sample.payload().len()), (&[3, 2][..], 24));
}

#[test]
fn definitions_that_cannot_be_used_say_why() {
    let refused = |name: &str, definition: &FileDescriptorSet| {
        SampleChannel::new(&channel(name, definition))
            .unwrap_err()
            .to_string()
    };
    let itself = file(
        "robot",
        vec![message(
            "Tree",
            vec![repeated("children", 1, Type::Message, ".robot.Tree")],
        )],
    );
    assert_eq!(
        refused("robot.Tree", &itself),
        "its messages (robot.Tree) cannot be decoded: the message `robot.Tree` contains itself, which an Arrow array cannot"
    );
    assert!(refused("robot.Pole", &state()).contains("does not define the message `robot.Pole`"));
    // Each message contains the next one twice: a type of 2^30 fields.
    let level = |at: i32| {
        let next = format!(".robot.L{}", at + 1);
        let fields = match at {
            29 => vec![field("x", 1, Type::Bool, "")],
            _ => vec![
                field("a", 1, Type::Message, &next),
                field("b", 2, Type::Message, &next),
            ],
        };
        message(&format!("L{at}"), fields)
    };
    let wide = file("robot", (0..30).map(level).collect());
    assert!(refused("robot.L0", &wide).contains("more than 4096 fields"));
    let mut without_key = state();
    without_key.file[0].message_type[0].nested_type[0]
        .field
        .remove(0);
    assert!(
        refused("robot.State", &without_key)
            .contains("are not a key (field 1) and a value (field 2)")
    );
    let mut damaged = channel("robot.State", &state());
    damaged.schema = damaged.schema[..20].into();
    let error = SampleChannel::new(&damaged).unwrap_err().to_string();
    assert!(error.contains("no set of protobuf descriptors"), "{error}");
}

proptest! {
    #[test]
    fn any_message_is_read_or_refused(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let channel = channel("robot.State", &state());
        let samples = SampleChannel::new(&channel).unwrap();
        let message = recorded(&channel, data);
        if let Ok(sample) = samples.sample(&message) {
            value_of(&sample);
        }
    }
}
