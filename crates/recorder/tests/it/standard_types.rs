//! Samples of every standard type become messages that viewers show.

use std::path::Path;
use std::sync::Arc;

use nervure_message::{Metadata, SerdeSample};
use nervure_recorder::{Message, Recording};
use nervure_types::{Definition, Kind, standard_names, standard_type};
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use serde_json::{Map, Number, Value as Json, json};

use crate::support::{Owned, record_typed, replay};

/// A record of a type in which all values differ.
fn example(definition: &Definition, next: &mut u32) -> Json {
    let fields = definition.fields.iter();
    let fields = fields.map(|field| (field.name.clone(), example_of(&field.kind, next)));
    Json::Object(fields.collect::<Map<_, _>>())
}

fn example_of(kind: &Kind, next: &mut u32) -> Json {
    *next += 1;
    match kind {
        Kind::Bool => true.into(),
        Kind::Number(number) if number.is_float() => (f64::from(*next) + 0.5).into(),
        Kind::Number(_) => (*next % 90 + 10).into(),
        Kind::Text(_) => format!("text {next}").into(),
        Kind::Message(message) => example(message, next),
        Kind::Array(item, count) => (0..*count).map(|_| example_of(item, next)).collect(),
        Kind::Sequence(item, _) => (0..2).map(|_| example_of(item, next)).collect(),
    }
}

/// Records a value under a type, and reads its message with its descriptor from the file.
fn recorded(type_name: Option<&str>, value: &Json) -> (String, DynamicMessage) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let sample = Owned::new(&SerdeSample::new(value).unwrap(), &Metadata::new(), 3);
    record_typed(&path, type_name, &sample);
    let message = only_message(&path);
    let replayed = replay(&Recording::open(&path).unwrap());
    assert_eq!(replayed, [("a/b".to_owned(), sample)]);
    let channel = &message.channel;
    assert_eq!(channel.message_encoding, "protobuf", "{type_name:?}");
    let pool = DescriptorPool::decode(&*channel.schema).unwrap();
    let descriptor = pool.get_message_by_name(&channel.schema_name).unwrap();
    let decoded = DynamicMessage::decode(descriptor, &*message.data).unwrap();
    (channel.schema_name.clone(), decoded)
}

fn only_message(path: &Path) -> Message {
    let recording = Recording::open(path).unwrap();
    let mut messages = recording.messages();
    let message = messages.next().unwrap().unwrap();
    assert!(messages.next().is_none());
    message
}

/// A message without stamp and frame, as JSON.
fn shown(message: &DynamicMessage) -> Json {
    let descriptor = message.descriptor();
    let fields = descriptor.fields().filter(|field| {
        message.has_field(field) && !["timestamp", "frame_id"].contains(&field.name())
    });
    let fields = fields.map(|field| (field.name().to_owned(), value(&message.get_field(&field))));
    Json::Object(fields.collect())
}

fn value(value_of: &Value) -> Json {
    match value_of {
        Value::Bool(value) => (*value).into(),
        Value::I32(value) => (*value).into(),
        Value::EnumNumber(value) => (*value).into(),
        Value::I64(value) => (*value).into(),
        Value::U32(value) => (*value).into(),
        Value::U64(value) => (*value).into(),
        Value::F32(value) => Number::from_f64((*value).into()).into(),
        Value::F64(value) => Number::from_f64(*value).into(),
        Value::String(value) => value.clone().into(),
        Value::Bytes(bytes) => bytes.to_vec().into(),
        Value::Message(message) => shown(message),
        Value::List(items) => items.iter().map(value).collect(),
        Value::Map(_) => panic!("there are no maps"),
    }
}

fn records() -> impl Iterator<Item = (String, Arc<Definition>)> {
    let all = standard_names().map(|name| (name.to_string(), standard_type(&name).unwrap()));
    all.filter(|(_, definition)| definition.payload().is_none())
}

#[test]
fn records_of_every_standard_type_are_messages_with_all_of_their_values() {
    let (mut own, mut foxglove) = (0, 0);
    for (name, definition) in records() {
        let sample = example(&definition, &mut 0);
        let (schema, message) = recorded(Some(&name), &sample);
        let sources = &definition.facts.foxglove_fields;
        let known = definition.facts.foxglove.clone();
        assert_eq!(known.is_some(), !sources.is_empty(), "{name}");
        match known {
            Some(known) => {
                assert_eq!(schema, known, "{name}");
                for field in sources.keys() {
                    assert!(message.has_field_by_name(field), "{name}: no {field}");
                }
                foxglove += 1;
            }
            None => {
                assert_eq!(format!("{schema}@1").replace('.', "/"), name);
                assert_eq!(shown(&message), sample, "{name}");
                own += 1;
            }
        }
    }
    assert_eq!((own, foxglove), (25, 13));
}

#[test]
fn sources_name_fields_of_the_types() {
    for (name, definition) in records() {
        for source in definition.facts.foxglove_fields.values() {
            for (path, loops) in source.paths() {
                let each = path.to_string().matches("[]").count();
                assert!(each <= loops, "{name}: {path} has no loop");
                assert!(
                    leads_somewhere(&definition, &path.to_string()),
                    "{name}: {path}"
                );
            }
        }
    }
}

fn leads_somewhere(definition: &Definition, path: &str) -> bool {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let name = first.split('[').next().unwrap();
    let Some(field) = definition.fields.iter().find(|field| field.name == name) else {
        return false;
    };
    let kind = match &field.kind {
        Kind::Sequence(item, _) | Kind::Array(item, _) if first.contains('[') => item,
        kind => kind,
    };
    match kind {
        _ if rest.is_empty() => true,
        Kind::Message(message) => leads_somewhere(message, rest),
        _ => false,
    }
}

#[test]
fn messages_of_foxglove_have_the_values_of_the_sample() {
    let stamp = json!({"seconds": 1_700_000_000, "nanos": 2_999_993});
    let joints = json!({"name": ["a", "b"], "position": [1.5, 2.5], "effort": [0.5]});
    let (_, message) = recorded(Some("std/JointState@1"), &joints);
    assert_eq!(
        shown(&message),
        json!({"joints": [{"name": "a", "position": 1.5, "effort": 0.5}, {"name": "b", "position": 2.5}]})
    );
    let found = message.get_field_by_name("timestamp").unwrap();
    assert_eq!(value(&found), stamp);

    let log = json!({"level": 40, "name": "arm", "msg": "stuck"});
    let (_, message) = recorded(Some("std/Log@1"), &log);
    assert_eq!(
        shown(&message),
        json!({"level": 4, "name": "arm", "message": "stuck"})
    );

    let pose = json!({"position": {"x": 1.0, "y": 0.0, "z": 2.0}, "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}});
    let info = json!({"resolution": 0.25, "width": 2, "height": 1, "origin": pose});
    let grid = json!({"info": info, "data": [-1, 100]});
    let (_, message) = recorded(Some("std/OccupancyGrid@1"), &grid);
    let shown_grid = shown(&message);
    assert_eq!(shown_grid["data"], json!([255, 100]));
    assert_eq!(shown_grid["cell_size"], json!({"x": 0.25, "y": 0.25}));
    assert_eq!(
        shown_grid["fields"],
        json!([{"name": "occupancy", "type": 2}])
    );
    assert_eq!(shown_grid["pose"]["orientation"], json!({"w": 1.0}));

    let hypothesis = json!({"hypothesis": {"class_id": "cup", "score": 0.75}});
    let center = json!({"position": {"x": 10.0, "y": 20.0}, "theta": 0.0});
    let bbox = json!({"center": center, "size_x": 4.0, "size_y": 2.0});
    let detection = json!({"results": [hypothesis], "bbox": bbox});
    let unnamed = json!({"results": [], "bbox": bbox});
    let found = json!({"detections": [detection, unnamed]});
    let (_, message) = recorded(Some("std/Detections2D@1"), &found);
    let annotations = shown(&message);
    assert_eq!(
        annotations["points"][1]["points"],
        json!([{"x": 8.0, "y": 19.0}, {"x": 12.0, "y": 19.0}, {"x": 12.0, "y": 21.0}, {"x": 8.0, "y": 21.0}])
    );
    assert_eq!(annotations["texts"][0]["text"], "cup");
    assert_eq!(annotations["texts"][1].get("text"), None);
}

#[test]
fn any_record_becomes_a_message_with_its_fields() {
    let record = json!({
        "x y": 1.5, "x-y": -2, "timestamp": 7, "3d": true, "text": "ä", "none": null,
        "nested": [[1, 2], [], [3]], "poses": [{"x": 1.0}, {"x": 2.0}], "a_message": 1, "a": {"b": 2},
        "long": vec![1.0; 8193], "empty": [],
    });
    let (schema, message) = recorded(None, &record);
    assert_eq!(schema, "nervure.Record");
    let mut fields = shown(&message);
    // A record's own field comes before the stamp, and is left out by `shown`.
    let own = message.get_field_by_name("timestamp").unwrap();
    fields["timestamp"] = value(&own);
    assert_eq!(
        fields,
        json!({
            "x_y": 1.5, "x_y_2": -2, "timestamp": 7, "_3d": true, "text": "ä",
            "nested": [{"items": [1, 2]}, {}, {"items": [3]}], "poses": [{"x": 1.0}, {"x": 2.0}],
            "a_message": 1, "a": {"b": 2},
        })
    );
}

#[test]
fn a_sample_that_does_not_fit_its_type_has_its_own_fields() {
    let (schema, message) = recorded(Some("std/Pose"), &json!({"heading": 1.5}));
    assert_eq!(schema, "nervure.Record");
    assert_eq!(shown(&message), json!({"heading": 1.5}));
    let pose = json!({"position": {"x": 1.5, "y": 0.0, "z": 0.0}, "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}});
    assert_eq!(recorded(Some("std/Pose"), &pose).0, "foxglove.PoseInFrame");
    assert_eq!(recorded(Some("my/Pose@1"), &pose).0, "my.Pose");
}

#[test]
fn a_damaged_record_is_kept_as_it_is() {
    let value = json!({"lists": [[1, 2], [3]]});
    let mut sample = Owned::new(&SerdeSample::new(&value).unwrap(), &Metadata::new(), 3);
    // Offsets beyond the items, and lists that overlap.
    let last = sample.payload.len();
    for offset in [i64::MAX, 3] {
        sample.payload[..last - 24].fill(0);
        sample.payload[8..16].copy_from_slice(&offset.to_le_bytes());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        record_typed(&path, None, &sample);
        let message = only_message(&path);
        let kept = message.data.windows(sample.payload.len());
        assert_eq!(kept.filter(|bytes| *bytes == sample.payload).count(), 1);
    }
    sample.payload.truncate(last - 8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    record_typed(&path, None, &sample);
    assert_eq!(only_message(&path).channel.message_encoding, "nervure");
}
