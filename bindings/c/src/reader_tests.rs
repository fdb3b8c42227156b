//! Structs are written and read again, and hostile samples are read in bounds or refused.

use std::ptr;

use nervure_node::Sample;
use nervure_node::message::array::ArrayLayout;
use nervure_node::message::record::ArrayPlanner;
use nervure_node::message::{Encode, Header, Layout, Metadata, Schema, SerdeSample, Tensor};
use serde::Serialize;

use crate::dtype::Dtype;
use crate::layout::{LayoutKind, Shape};
use crate::record::Record;
use crate::scene::{Scene, full, list, number, scene};
use crate::schemas;
use crate::status::{Failure, Status};
use crate::structs::StructSample;
use crate::value::Kind;

/// A scene in Rust.
#[derive(Serialize)]
struct Sent<'a> {
    weight: f64,
    name: &'a str,
    origin: Option<SentPlace>,
    rows: Vec<SentRow<'a>>,
    image: Tensor<'a>,
    corners: [f64; 2],
}

#[derive(Serialize)]
struct SentPlace {
    x: i32,
    is_known: bool,
}

#[derive(Serialize)]
struct SentRow<'a> {
    tags: Vec<&'a str>,
    values: Option<Vec<i64>>,
}

fn read(sample: &Sample, shape: Shape, into: &mut Scene) -> Result<(), Failure> {
    // SAFETY: the shape is that of a scene.
    unsafe { schemas::read(sample, shape, ptr::from_mut(into).cast()) }
}

fn local(value: &dyn Encode) -> Sample {
    Sample::local(&value, &Metadata::new(), Header::default(), None).unwrap()
}

#[test]
fn a_struct_is_what_it_was_whatever_it_is_read_into() {
    let shape = scene();
    let mut schemas_seen = Vec::new();
    for value in [full(), Scene::default()] {
        // SAFETY: the shape is that of a scene.
        let sample = unsafe { StructSample::new(shape, ptr::from_ref(&value).cast()) }.unwrap();
        schemas_seen.push(sample.schema().unwrap().id());
        let received = local(&sample);
        received.array().unwrap().validate_full().unwrap();
        for mut into in [Scene::default(), full()] {
            read(&received, shape, &mut into).unwrap();
            assert_eq!(into, value);
        }
    }
    assert_eq!(schemas_seen[0], schemas_seen[1]);
}

#[test]
fn a_text_that_is_not_utf8_is_not_sent() {
    let value = Scene {
        name: vec![0xff],
        ..full()
    };
    // SAFETY: the shape is that of a scene.
    let refused = unsafe { StructSample::new(scene(), ptr::from_ref(&value).cast()) };
    let message = refused.map(|_| ()).unwrap_err().message;
    assert!(
        message.starts_with("Scene, field `name`: expected a text in UTF-8"),
        "{message}"
    );
}

/// The record of another language, with integers for numbers and a tensor that is not in C order.
fn with_sent<R>(run: impl FnOnce(&dyn Encode) -> R) -> R {
    let pixels: Vec<u16> = (0..6).collect();
    let layout = nervure_node::message::TensorLayout::strided(
        nervure_node::message::DType::U16,
        &[3, 2],
        &[2, 6],
    );
    let bytes: Vec<u8> = pixels
        .iter()
        .flat_map(|pixel| pixel.to_le_bytes())
        .collect();
    let sent = Sent {
        weight: 2.5,
        name: "grüß",
        origin: Some(SentPlace {
            x: 7,
            is_known: true,
        }),
        rows: vec![
            SentRow {
                tags: vec!["a", "bc"],
                values: Some(vec![1, -2, 3]),
            },
            SentRow {
                tags: vec![],
                values: None,
            },
            SentRow {
                tags: vec!["d"],
                values: Some(vec![]),
            },
        ],
        image: Tensor::from_bytes(layout.unwrap(), &bytes).unwrap(),
        corners: [0.5, 1.5],
    };
    run(&SerdeSample::new(&sent).unwrap())
}

#[test]
fn a_record_of_rust_is_read_as_the_same_struct() {
    let mut into = Scene::default();
    with_sent(|sample| read(&local(sample), scene(), &mut into)).unwrap();
    assert_eq!(into, full());
}

/// A sample with another head or payload than its value would have.
struct Changed {
    layout: ArrayLayout,
    payload: Vec<u8>,
    schema: Schema,
}

impl Encode for Changed {
    fn layout(&self) -> Layout {
        Layout::Array(self.layout.clone())
    }

    fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    fn write(&self, payload: &mut [u8]) {
        payload.copy_from_slice(&self.payload);
    }

    fn schema(&self) -> Option<&Schema> {
        Some(&self.schema)
    }
}

fn layout_of(length: usize, numbers: &[u64]) -> ArrayLayout {
    let mut planner = ArrayPlanner::default();
    numbers
        .iter()
        .for_each(|number| planner.number(*number as usize));
    planner.finish(length).unwrap().0
}

/// Reads a sample, and again if it is refused: a refusal leaves a struct that can be used.
fn read_or_refuse(sample: &Changed, shape: Shape, into: &mut Scene) {
    let received = local(sample);
    if let Err(failure) = read(&received, shape, into) {
        assert_eq!(failure.status, Status::Kind, "{}", failure.message);
    }
    read_paths(&received);
    let size = |scene: &Scene| {
        let rows = scene.rows.iter();
        let texts = rows
            .clone()
            .flat_map(|row| &row.tags)
            .map(Vec::len)
            .sum::<usize>();
        let values = rows
            .flat_map(|row| &row.values)
            .map(Vec::len)
            .sum::<usize>();
        texts + values + scene.rows.len() + scene.image.len() + scene.name.len()
    };
    let limit = 16 * sample.payload.len() + (1 << 20);
    assert!(
        size(into) <= limit,
        "{} values from {} bytes",
        size(into),
        sample.payload.len()
    );
}

/// Reads values of a sample by paths, all bytes of those in place.
fn read_paths(sample: &Sample) {
    let Ok(mut record) = Record::open(sample) else {
        return;
    };
    for path in [
        "",
        "name",
        "image",
        "image[5]",
        "rows[0].tags[1]",
        "rows[2].values",
        "origin.x",
    ] {
        let _ = record.count(path);
        let Ok(value) = record.get(path) else {
            continue;
        };
        // SAFETY: the value is of this kind, and in place.
        let bytes = unsafe {
            match value.kind {
                Kind::Text => value.as_bytes().unwrap(),
                Kind::Tensor => value.as_tensor().unwrap().1,
                _ => &[],
            }
        };
        std::hint::black_box(bytes.iter().copied().map(u64::from).sum::<u64>());
    }
}

#[test]
fn hostile_samples_are_read_in_bounds_or_refused() {
    let shape = scene();
    let (layout, payload, schema) = with_sent(|sample| {
        let mut payload = vec![0; sample.payload_bytes()];
        sample.write(&mut payload);
        let Layout::Array(layout) = sample.layout() else {
            panic!("a record is an array")
        };
        (layout, payload, sample.schema().unwrap().clone())
    });
    let numbers: Vec<u64> = layout.numbers().collect();
    let mut changed = Changed {
        layout: layout.clone(),
        payload: payload.clone(),
        schema,
    };
    let mut into = Scene::default();
    for at in 0..numbers.len() {
        for other in [0, 1, 2, 3, 7, 1 << 20, 1 << 31, u64::MAX] {
            let mut numbers = numbers.clone();
            numbers[at] = other;
            changed.layout = layout_of(layout.len(), &numbers);
            read_or_refuse(&changed, shape, &mut into);
        }
        changed.layout = layout_of(layout.len(), &numbers[..at]);
        read_or_refuse(&changed, shape, &mut into);
    }
    changed.layout = layout;
    for at in 0..payload.len() {
        for other in [0, 1, 0x7f, 0x80, 0xff] {
            changed.payload.clone_from(&payload);
            changed.payload[at] = other;
            read_or_refuse(&changed, shape, &mut into);
        }
        changed.payload.truncate(at);
        read_or_refuse(&changed, shape, &mut into);
    }
}

/// Each of many lists claims all items.
#[test]
fn lists_that_overlap_do_not_multiply() {
    const LISTS: usize = 1000;
    let row = |count| SentRow {
        tags: vec![],
        values: Some(vec![1; count]),
    };
    let rows: Vec<_> = (0..LISTS).map(|_| row(1)).collect();
    let sample = SerdeSample::new(&rows).unwrap();
    let mut payload = vec![0; sample.payload_bytes()];
    sample.write(&mut payload);
    let offsets: Vec<u8> = (0..=LISTS as i64).flat_map(i64::to_le_bytes).collect();
    let at = payload
        .windows(offsets.len())
        .position(|window| window == offsets)
        .unwrap();
    // From 0 to all items, in turns: half of the lists have all, the others a negative number.
    for (index, offset) in payload[at..][..offsets.len()]
        .as_chunks_mut()
        .0
        .iter_mut()
        .enumerate()
    {
        *offset = (if index % 2 == 0 { 0 } else { LISTS as i64 }).to_le_bytes();
    }
    let Layout::Array(layout) = Encode::layout(&sample) else {
        panic!("a list is an array")
    };
    let changed = Changed {
        layout,
        payload,
        schema: sample.schema().unwrap().clone(),
    };
    let received = local(&changed);
    let columns = schemas::columns_of(&received).unwrap();
    let mut places = Default::default();
    schemas::find(&mut places, &columns, &received).unwrap();
    let view = nervure_node::message::record::RecordView::new(&columns, &places, received.bytes());
    let values = list::<i32>(LayoutKind::List, number::<i32>(Dtype::I32));
    let column = columns.field(0, "values").unwrap();
    let reader = crate::reader::Reader::new(&columns, column, Shape(values)).unwrap();
    let mut reading = crate::reader::Reading::new(view);
    let mut read = 0;
    for row in (0..LISTS).step_by(2) {
        let mut into: Vec<i32> = Vec::new();
        // SAFETY: the shape is that of the vector.
        if unsafe { reading.read(&reader, row, ptr::from_mut(&mut into).cast()) }.is_err() {
            break;
        }
        read += into.len();
    }
    assert!(
        (LISTS..10 * LISTS).contains(&read),
        "{read} items from {LISTS}"
    );
}
