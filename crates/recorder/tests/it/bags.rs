//! Messages of ROS 2 that contradict their definition or themselves. Valid ones are tested with
//! bags (`tests/test_bags.py`).

use std::sync::Arc;

use nervure_message::{Encode, Layout};
use nervure_recorder::{Channel, Message, SampleChannel};
use proptest::prelude::*;

const HEADER: &str = "
===
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
===
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec";

fn image_definition() -> String {
    let fields = "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step";
    format!("{fields}\nuint8[] data{HEADER}")
}

fn cloud_definition() -> String {
    let fields = "std_msgs/Header header\nuint32 height\nuint32 width\nPointField[] fields\nbool is_bigendian\n\
                  uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense";
    let field = "===\nMSG: sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\nuint32 count";
    format!("{fields}{HEADER}\n{field}")
}

fn channel(name: &str, definition: &str) -> Arc<Channel> {
    Arc::new(Channel {
        topic: "/topic".to_owned(),
        message_encoding: "cdr".to_owned(),
        schema_name: name.to_owned(),
        schema_encoding: "ros2msg".to_owned(),
        schema: definition.as_bytes().into(),
        metadata: Default::default(),
    })
}

/// A message in little-endian CDR.
#[derive(Default)]
struct Cdr(Vec<u8>);

impl Cdr {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(self, value: &[u8]) -> Self {
        let mut cdr = self.u32(value.len() as u32);
        cdr.0.extend_from_slice(value);
        cdr
    }

    fn header() -> Self {
        Self::default().u32(1_700_000_000).u32(5).bytes(b"front\0")
    }

    fn message(&self, channel: &Arc<Channel>) -> Message {
        let data = [&[0, 1, 0, 0], self.0.as_slice()].concat();
        Message {
            channel: channel.clone(),
            sequence: 7,
            log_time: 11,
            set_back: 0,
            data,
        }
    }
}

fn image(height: u32, width: u32, encoding: &str, step: u32, data: &[u8]) -> Cdr {
    let encoding = [encoding.as_bytes(), b"\0"].concat();
    Cdr::header()
        .u32(height)
        .u32(width)
        .bytes(&encoding)
        .u8(0)
        .u32(step)
        .bytes(data)
}

fn cloud(fields: &[(&str, u32, u8)], point_step: u32, data: &[u8]) -> Cdr {
    let mut cdr = Cdr::header().u32(1).u32(2).u32(fields.len() as u32);
    for (name, offset, datatype) in fields {
        cdr = cdr
            .bytes(&[name.as_bytes(), b"\0"].concat())
            .u32(*offset)
            .u8(*datatype)
            .u32(1);
    }
    cdr.u8(0)
        .u32(point_step)
        .u32(2 * point_step)
        .bytes(data)
        .u8(1)
}

fn refused(channel: &Arc<Channel>, cdr: &Cdr) -> String {
    let samples = SampleChannel::new(channel).unwrap();
    samples
        .sample(&cdr.message(channel))
        .unwrap_err()
        .to_string()
}

#[test]
fn images_that_contradict_themselves_are_refused_with_the_numbers() {
    let channel = channel("sensor_msgs/msg/Image", &image_definition());
    let samples = SampleChannel::new(&channel).unwrap();
    let whole = image(2, 2, "rgb8", 6, &[1; 12]).message(&channel);
    let sample = samples.sample(&whole).unwrap();
    assert_eq!(
        (sample.header().stamp, sample.frame()),
        (1_700_000_000_000_000_005, Some("front"))
    );
    let Layout::Tensor(layout) = sample.layout() else {
        panic!("expected a tensor")
    };
    assert_eq!(layout.shape(), [2, 2, 3]);
    for (cdr, expected) in [
        (
            image(2, 2, "rgb8", 5, &[1; 12]),
            "2 pixels of rgb8 do not fit its step of 5 bytes",
        ),
        (
            image(3, 2, "rgb8", 6, &[1; 12]),
            "it has 12 bytes of 18 that its size asks for",
        ),
        (
            image(u32::MAX, u32::MAX, "64FC4", u32::MAX, &[1; 12]),
            "do not fit its step",
        ),
        (
            image(u32::MAX, 1, "mono8", u32::MAX, &[1; 12]),
            "does not fit in memory",
        ),
        (
            image(2, 2, &"x".repeat(300), 6, &[1; 12]),
            "its encoding has 300 bytes",
        ),
        (
            Cdr::header(),
            "the message needs 4 bytes at byte 24, where 0 are left",
        ),
    ] {
        let error = refused(&channel, &cdr);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn clouds_that_contradict_themselves_are_refused_with_the_numbers() {
    let channel = channel("sensor_msgs/msg/PointCloud2", &cloud_definition());
    let samples = SampleChannel::new(&channel).unwrap();
    let whole = cloud(&[("x", 0, 7), ("ring", 4, 4)], 8, &[1; 16]).message(&channel);
    assert!(matches!(
        samples.sample(&whole).unwrap().layout(),
        Layout::Tensor(_)
    ));
    for (cdr, expected) in [
        (
            cloud(&[("x", 0, 7), ("y", 2, 7)], 8, &[1; 16]),
            "its field \"y\" lies within the one before",
        ),
        (
            cloud(&[("x", 6, 7)], 8, &[1; 16]),
            "reach to byte 10 of points of 8 bytes",
        ),
        (
            cloud(&[("x", u32::MAX, 8)], 8, &[1; 16]),
            "reach to byte 4294967303",
        ),
        (cloud(&[("x", 0, 9)], 8, &[1; 16]), "is of type 9"),
        (
            cloud(&[("x", 0, 7), ("x", 4, 7)], 8, &[1; 16]),
            "two of its fields are called 'x'",
        ),
        (cloud(&[], 8, &[1; 16]), "its points have no fields"),
        (cloud(&[("x", 0, 7)], 8, &[1; 11]), "it has 11 bytes of 12"),
        (
            Cdr::header().u32(1).u32(1).u32(1000).bytes(&[0; 2000]),
            "1000 fields, at most 64 are read",
        ),
    ] {
        let error = refused(&channel, &cdr);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn definitions_in_idl_are_those_of_message_files() {
    const LINE: &str =
        "================================================================================";
    let part = "module a { module msg { struct Part { long x; }; }; };";
    let whole = "#include \"a/msg/Part.idl\"\nmodule a { module msg { typedef double Pair[2];\n\
                 struct Whole { a::msg::Part part; Pair pair; sequence<string> names; }; }; };";
    let text = format!("{LINE}\nIDL: a/msg/Whole\n{whole}\n{LINE}\nIDL: a/msg/Part\n{part}\n");
    let as_message = "Part part\nfloat64[2] pair\nstring[] names\n===\nMSG: a/Part\nint32 x";
    let message = Cdr::default()
        .u32(7)
        .u32(0)
        .u32(0)
        .u32(1)
        .u32(0)
        .u32(2)
        .u32(1)
        .bytes(b"hi\0");
    let read = |name: &str, encoding: &str, text: &str| {
        let mut channel = Channel::clone(&channel(name, text));
        channel.schema_encoding = encoding.to_owned();
        let message = message.message(&Arc::new(channel));
        let samples = SampleChannel::new(&message.channel).map_err(|error| error.to_string())?;
        let sample = samples
            .sample(&message)
            .map_err(|error| error.to_string())?;
        Ok::<_, String>((sample.payload().to_vec(), sample.schema().cloned()))
    };
    let expected = read("a/msg/Whole", "ros2msg", as_message).unwrap();
    assert!(read("a/msg/Whole", "ros2idl", &text) == Ok(expected.clone()));
    let flat = format!("{part}\n{whole}");
    assert!(read("a::msg::Whole", "omgidl", &flat) == Ok(expected));
    let error = read("a/msg/Whole", "ros2idl", "union U {};").unwrap_err();
    assert!(error.contains("its IDL, line 1: found `union`"), "{error}");
}

#[test]
fn json_becomes_the_value_that_it_is() {
    let mut json = Channel::clone(&channel("Settings", ""));
    json.message_encoding = "json".to_owned();
    json.schema_encoding = "jsonschema".to_owned();
    let message = |data: &[u8]| Message {
        channel: Arc::new(json.clone()),
        sequence: 1,
        log_time: 11,
        set_back: 0,
        data: data.to_vec(),
    };
    let samples = SampleChannel::new(&json).unwrap();
    let text = message(b"\"hi\"");
    let sample = samples.sample(&text).unwrap();
    assert_eq!(
        (sample.layout(), sample.payload()),
        (Layout::Text, &b"hi"[..])
    );
    let map = message(br#"{"speed": 1.5, "names": ["a"], "on": true}"#);
    let sample = samples.sample(&map).unwrap();
    assert!(matches!(sample.layout(), Layout::Array(_)) && sample.schema().is_some());
    assert_eq!(sample.header().stamp, 11);
    for (data, expected) in [
        (&b"{\"a\": "[..], "the message is no JSON: EOF"),
        (b"[1, \"a\"]", "must be of one type"),
        (b"\0\x01", "the message is no JSON"),
    ] {
        let error = samples.sample(&message(data)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn a_definition_that_lacks_fields_is_noticed(
        sizes in proptest::collection::vec(0..4_u32, 2..9), kept in 1..8_usize,
    ) {
        let sizes: Vec<usize> = sizes.iter().map(|power| 1 << power).collect();
        let field = |(number, size): (usize, &usize)| format!("uint{} f{number}\n", size * 8);
        let fields: Vec<String> = sizes.iter().enumerate().map(field).collect();
        let mut cdr = Cdr::default();
        for size in &sizes {
            cdr.0.resize(cdr.0.len().next_multiple_of(*size), 0);
            cdr.0.resize(cdr.0.len() + size, 0xff);
        }
        let channel_of = |fields: &[String]| channel("a/msg/B", &fields.concat());
        let whole = channel_of(&fields);
        prop_assert!(SampleChannel::new(&whole).unwrap().sample(&cdr.message(&whole)).is_ok());
        let kept = kept.min(fields.len() - 1);
        let error = refused(&channel_of(&fields[..kept]), &cdr);
        prop_assert!(error.contains("left after the last field"), "{error}");
    }

    #[test]
    fn any_message_is_read_or_refused(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mixed = "bool on\nstring[] names\nfloat64[3] xyz\nPart[] parts\nPart[2] pair\n===\nMSG: a/Part\nuint16[] values\nstring label";
        for (name, definition) in [
            ("sensor_msgs/msg/Image", image_definition()),
            ("sensor_msgs/msg/PointCloud2", cloud_definition()),
            ("a/msg/Mixed", mixed.to_owned()),
        ] {
            let channel = channel(name, &definition);
            let samples = SampleChannel::new(&channel).unwrap();
            if let Ok(sample) = samples.sample(&Cdr(data.clone()).message(&channel)) {
                let mut payload = vec![0; sample.payload_bytes()];
                sample.write(&mut payload);
            }
        }
    }
}
