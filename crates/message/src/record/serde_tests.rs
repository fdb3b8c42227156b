use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::*;
use crate::array::read;
use crate::encode::Encode;
use crate::layout::Layout;
use crate::schema::Schema;
use crate::tensor::{Tensor, TensorLayout};
use crate::view::payload_buffer;
use crate::{DType, schema::PYTHON_KIND};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Frame<'a> {
    stamp: f64,
    name: String,
    #[serde(borrow)]
    image: Tensor<'a>,
    poses: Vec<Pose<'a>>,
    mode: Mode,
    last: Option<Mode>,
    labels: BTreeMap<String, i64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Pose<'a> {
    #[serde(borrow)]
    position: Tensor<'a>,
    weight: Option<f32>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Mode {
    Idle,
    Drive { speed: f64 },
    Turn(i32),
    Both(i32, i32),
}

/// A value as received.
fn arrived<V: Serialize + ?Sized>(value: &V) -> ReceivedRecord {
    let sample = SerdeSample::new(value).unwrap();
    let mut words = vec![u64::MAX; sample.payload_bytes().div_ceil(8)];
    let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..sample.payload_bytes()];
    sample.write(bytes);
    let payload = payload_buffer(bytes.to_vec());
    let Layout::Array(layout) = sample.layout() else {
        panic!("a record is an array")
    };
    let schema = Schema::decode(sample.schema().unwrap().bytes()).unwrap();
    ReceivedRecord::new(read(&layout, &schema, &payload).unwrap(), schema)
}

#[test]
fn a_struct_with_tensors_round_trips() {
    let pixels: Vec<u8> = (0..4 * 6 * 3).collect();
    let numbers: Vec<f32> = (0..6).map(|number| number as f32).collect();
    let fortran = TensorLayout::strided(DType::F32, &[2, 3], &[4, 8]).unwrap();
    let fortran = Tensor::from_bytes(fortran, bytemuck::cast_slice(&numbers)).unwrap();
    let pose = |weight| Pose {
        position: fortran.clone(),
        weight,
    };
    let frame = Frame {
        stamp: 1.5,
        name: "front".to_owned(),
        image: Tensor::new(&pixels, &[4, 6, 3]).unwrap(),
        poses: vec![pose(Some(0.5)), pose(None)],
        mode: Mode::Drive { speed: 0.25 },
        last: None,
        labels: [("cup".to_owned(), 2), ("ball".to_owned(), -1)].into(),
    };
    let record = arrived(&frame);
    assert_eq!(record.deserialize::<Frame<'_>>().unwrap(), frame);
    let image = record.deserialize::<Frame<'_>>().unwrap().image;
    assert_eq!(image.as_slice::<u8>().unwrap(), pixels);
    assert_eq!(
        image.as_slice::<f32>().unwrap_err().to_string(),
        "expected elements of type f4, the tensor has u1"
    );
}

#[test]
fn enums_become_texts_or_structs_of_one_field() {
    for mode in [
        Mode::Idle,
        Mode::Drive { speed: 1.0 },
        Mode::Turn(-3),
        Mode::Both(1, 2),
    ] {
        let record = arrived(&mode);
        assert_eq!(record.deserialize::<Mode>().unwrap(), mode);
    }
    let modes = [Mode::Drive { speed: 1.0 }, Mode::Turn(-3), Mode::Both(1, 2)];
    let record = arrived(&modes[..]);
    assert_eq!(record.deserialize::<Vec<Mode>>().unwrap(), modes);
}

#[test]
fn lists_and_maps_equal_those_of_python() {
    let kind = |record: &Record<usize>| record.schema().root().metadata().get(PYTHON_KIND).cloned();
    let list = SerdeSample::new(&[1_i64, 2][..]).unwrap();
    assert_eq!(kind(list.record()).as_deref(), Some("list"));
    assert_eq!(
        arrived(&[1_i64, 2][..]).deserialize::<Vec<i64>>().unwrap(),
        [1, 2]
    );
    let map = BTreeMap::from([("a", 1.5)]);
    assert_eq!(
        kind(SerdeSample::new(&map).unwrap().record()).as_deref(),
        Some("dict")
    );
    assert_eq!(
        arrived(&map)
            .deserialize::<BTreeMap<&str, f64>>()
            .map(|map| map["a"]),
        Ok(1.5)
    );
}

#[test]
fn errors_name_the_path_of_the_value() {
    #[derive(Debug, Serialize)]
    struct Outer {
        rows: Vec<(i32, &'static str)>,
    }
    let error = SerdeSample::new(&Outer {
        rows: vec![(1, "a")],
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "value.rows[0][1]: the elements of a list, and what maps of a list have under one key, must be of one type: text stands beside a number"
    );
    let error = SerdeSample::new(&BTreeMap::from([(1, 2)])).unwrap_err();
    assert_eq!(error.to_string(), "value: the keys of a map must be text");

    #[derive(Debug, Deserialize)]
    struct Wanted {
        #[expect(dead_code, reason = "a field that the record does not have")]
        a: bool,
    }
    let record = arrived(&BTreeMap::from([("a", 1.5)]));
    let error = record.deserialize::<Wanted>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "a: invalid type: floating point `1.5`, expected a boolean"
    );
    let record = arrived(&BTreeMap::from([("b", 1.5)]));
    assert_eq!(
        record.deserialize::<Wanted>().unwrap_err().to_string(),
        "missing field `a`"
    );
}

#[test]
fn a_tensor_or_bytes_are_a_list_where_the_type_has_a_list() {
    #[derive(Serialize)]
    struct Sent<'a> {
        c_order: Tensor<'a>,
        fortran: Tensor<'a>,
        none: Option<Tensor<'a>>,
        bytes: Bytes,
        numbers: Vec<u8>,
    }
    struct Bytes;
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&[7, 8])
        }
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct Lists {
        c_order: [f64; 6],
        fortran: Vec<f64>,
        none: Option<Vec<f64>>,
        bytes: Vec<u8>,
        numbers: Vec<u8>,
    }
    let numbers = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let fortran = TensorLayout::strided(DType::F32, &[2, 3], &[4, 8]).unwrap();
    let record = arrived(&Sent {
        c_order: Tensor::new(&numbers, &[2, 3]).unwrap(),
        fortran: Tensor::from_bytes(fortran, bytemuck::cast_slice(&numbers)).unwrap(),
        none: None,
        bytes: Bytes,
        numbers: vec![1, 2],
    });
    let expected = Lists {
        c_order: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        fortran: vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0],
        none: None,
        bytes: vec![7, 8],
        numbers: vec![1, 2],
    };
    assert_eq!(record.deserialize::<Lists>().unwrap(), expected);
    let complex = TensorLayout::contiguous(DType::C64, &[1]).unwrap();
    let record = arrived(&Tensor::from_bytes(complex, &[0; 8]).unwrap());
    let error = record.deserialize::<Vec<Vec<f64>>>().unwrap_err();
    assert_eq!(error.to_string(), "expected a list, found a tensor of c8");
}

#[test]
fn an_array_or_tuple_of_another_length_is_refused() {
    let numbers = [1_i64, 2, 3];
    let expected = "of: expected 2 items, found 3";
    let list = arrived(&BTreeMap::from([("of", &numbers)]));
    let tensor = Tensor::new(&numbers, &[3]).unwrap();
    let tensor = arrived(&BTreeMap::from([("of", tensor)]));
    for record in [list, tensor] {
        assert_eq!(
            record.deserialize::<BTreeMap<&str, [i64; 3]>>().unwrap()["of"],
            numbers
        );
        let error = record.deserialize::<BTreeMap<&str, (i64, i64)>>();
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
    let error = arrived(&numbers[..]).deserialize::<[i64; 2]>();
    assert_eq!(error.unwrap_err().to_string(), "expected 2 items, found 3");
    let variant = arrived(&BTreeMap::from([("Both", [1, 2, 3])]));
    let error = variant.deserialize::<Mode>().unwrap_err();
    assert_eq!(error.to_string(), "expected 2 items, found 3");
}

#[test]
fn every_type_of_elements_is_a_list_of_numbers() {
    for code in 0..13 {
        let dtype = DType::from_code(code).unwrap();
        let layout = TensorLayout::contiguous(dtype.clone(), &[3]).unwrap();
        let zeros = vec![0; layout.payload_bytes()];
        let map = BTreeMap::from([("of", Tensor::from_bytes(layout, &zeros).unwrap())]);
        let record = arrived(&map);
        if dtype == DType::Bool {
            let found = record.deserialize::<BTreeMap<&str, Vec<bool>>>();
            assert_eq!(found.unwrap()["of"], [false; 3]);
        } else {
            let found = record.deserialize::<BTreeMap<&str, Vec<f64>>>();
            assert_eq!(found.unwrap()["of"], [0.0; 3], "{dtype}");
        }
    }
}
