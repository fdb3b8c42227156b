//! Every kind of value is replayed as it was recorded, byte for byte.

use nervure_message::{DType, Metadata, Scalar, Tensor, TensorLayout, Value};
use nervure_recorder::{RecorderOptions, Recording};
use proptest::prelude::*;

use crate::support::{Owned, record, replay};

fn metadata() -> impl Strategy<Value = Metadata> {
    let value = prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Integer),
        ".{0,8}".prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
    ];
    proptest::collection::vec(("[a-z]{1,8}", value), 0..4)
        .prop_map(|entries| entries.into_iter().collect())
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop_oneof![
        Just(DType::Bool),
        Just(DType::U8),
        Just(DType::U16),
        Just(DType::I32),
        Just(DType::U32),
        Just(DType::I64),
        Just(DType::U64),
        Just(DType::F16),
        Just(DType::F32),
        Just(DType::F64),
        Just(DType::C64),
        Just(DType::Custom {
            name: "[('x', '<f4'), ('n', '|u1')]".into(),
            item_bytes: 5
        }),
    ]
}

fn tensors() -> impl Strategy<Value = TensorLayout> {
    (
        dtypes(),
        proptest::collection::vec(0..24_usize, 0..4),
        any::<bool>(),
        0..3_usize,
    )
        .prop_map(|(dtype, shape, reversed, gap)| {
            if !reversed {
                return TensorLayout::contiguous(dtype, &shape).unwrap();
            }
            let mut step = dtype.item_bytes() + gap;
            let strides: Vec<usize> = shape
                .iter()
                .map(|&length| {
                    let stride = step;
                    step *= length.max(1);
                    stride
                })
                .collect();
            TensorLayout::strided(dtype, &shape, &strides).unwrap()
        })
}

fn values() -> impl Strategy<Value = Owned> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let scalar = prop_oneof![
        any::<bool>().prop_map(Scalar::Bool),
        any::<i64>().prop_map(Scalar::Integer),
        any::<u64>().prop_map(Scalar::Unsigned),
        (-1e300..1e300).prop_map(Scalar::Float),
    ];
    prop_oneof![
        (bytes(), metadata()).prop_map(|(value, metadata)| Owned::new(
            value.as_slice(),
            &metadata,
            0
        )),
        (bytes(), metadata()).prop_map(|(mut value, metadata)| {
            value.splice(0..0, [0xff, 0xd8, 0xff]);
            Owned::new(value.as_slice(), &metadata, 0)
        }),
        (".{0,40}", metadata()).prop_map(|(value, metadata)| Owned::new(
            value.as_str(),
            &metadata,
            0
        )),
        (scalar, metadata()).prop_map(|(value, metadata)| Owned::new(&value, &metadata, 0)),
        (tensors(), metadata(), any::<u8>()).prop_map(|(layout, metadata, byte)| {
            let content = vec![byte; layout.payload_bytes()];
            Owned::new(&Tensor::from_bytes(layout, &content).unwrap(), &metadata, 0)
        }),
    ]
}

proptest! {
    #[test]
    fn samples_round_trip(
        values in proptest::collection::vec((0..3_usize, values()), 1..12),
        compress: bool,
        chunk_bytes in 1..2000_usize,
    ) {
        const TOPICS: [&str; 3] = ["camera/image", "imu/sample", "äöü/ß"];
        let samples: Vec<(&str, Owned)> = values.into_iter().enumerate().map(|(number, (topic, mut sample))| {
            sample.header.publish_utc += number as i64;
            sample.header.sequence = number as u64;
            (TOPICS[topic], sample)
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        record(&path, &samples, RecorderOptions { compress, chunk_bytes, ..RecorderOptions::default() });
        let replayed = replay(&Recording::open(&path).unwrap());
        let replayed: Vec<(&str, Owned)> =
            replayed.iter().map(|(topic, sample)| (topic.as_str(), sample.clone())).collect();
        prop_assert_eq!(replayed, samples);
    }
}
