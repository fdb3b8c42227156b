use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Fields, Metadata};
use proptest::prelude::*;

use super::*;
use crate::array::{ArrayLayout, Plan, read};
use crate::dtype::DType;
use crate::encode::Encode;
use crate::layout::Layout;
use crate::schema::{PYTHON_KIND, Schema};
use crate::tensor::{Tensor, TensorLayout};
use crate::view::payload_buffer;

/// A record as received.
pub(super) struct Arrived {
    pub(super) schema: Schema,
    pub(super) layout: ArrayLayout,
    pub(super) payload: Buffer,
}

impl Arrived {
    pub(super) fn new<T: Elements>(record: &Record<T>) -> Self {
        let mut words = vec![u64::MAX; record.payload_bytes().div_ceil(8)];
        let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..record.payload_bytes()];
        record.write(bytes);
        let payload = Buffer::from_vec(words).slice_with_length(0, record.payload_bytes());
        let Layout::Array(layout) = Encode::layout(record) else {
            panic!("expected an array")
        };
        let schema = Encode::schema(record).unwrap();
        Self {
            schema: Schema::decode(schema.bytes()).unwrap(),
            layout,
            payload: payload_buffer(payload),
        }
    }

    fn array(&self) -> ArrayData {
        read(&self.layout, &self.schema, &self.payload).unwrap()
    }
}

/// The field of a struct, with its column.
fn field<'a>(array: &'a ArrayData, name: &str) -> (Field, &'a ArrayData) {
    let DataType::Struct(fields) = array.data_type() else {
        panic!("{} is not a struct", array.data_type())
    };
    let (index, field) = fields.find(name).unwrap();
    (field.as_ref().clone(), &array.child_data()[index])
}

fn tensors<'a>(field: &Field, array: &'a ArrayData) -> TensorColumn<'a> {
    TensorColumn::new(field, array)
        .unwrap()
        .expect("a column of tensors")
}

fn camera<'a>(image: &'a Tensor<'a>) -> Record<&'a Tensor<'a>> {
    let mut column = Column::default();
    let fields = column.begin_fields().unwrap();
    fields
        .field("img")
        .unwrap()
        .push_tensor(image.layout(), image)
        .unwrap();
    fields.field("t").unwrap().push_float(1.5).unwrap();
    column.end_fields();
    Record::new(column, "dict").unwrap()
}

#[test]
fn an_image_in_a_struct_is_a_view_of_the_payload() {
    let pixels: Vec<u8> = (0..4 * 6 * 3).collect();
    let image = Tensor::new(&pixels, &[4, 6, 3]).unwrap();
    let arrived = Arrived::new(&camera(&image));
    let array = arrived.array();
    let (img, column) = field(&array, "img");
    let TensorInRecord { layout, elements } = tensors(&img, column).get(0).unwrap().unwrap();
    assert_eq!(
        (&layout, elements.as_slice()),
        (image.layout(), &pixels[..])
    );
    assert!(
        arrived.payload.as_ptr_range().contains(&elements.as_ptr()),
        "the elements were copied"
    );
    let (t, column) = field(&array, "t");
    assert!(TensorColumn::new(&t, column).unwrap().is_none());
    assert_eq!(column.buffer::<f64>(0), [1.5]);
}

#[test]
fn the_type_is_the_canonical_one_of_arrow() {
    let image = Tensor::new(&[0_u8; 12], &[2, 2, 3]).unwrap();
    let arrived = Arrived::new(&camera(&image));
    let DataType::Struct(fields) = arrived.schema.data_type() else {
        panic!("a struct")
    };
    let (_, img) = fields.find("img").unwrap();
    assert_eq!(
        img.metadata().get(EXTENSION_TYPE_NAME_KEY).unwrap(),
        "arrow.variable_shape_tensor"
    );
    assert_eq!(
        img.metadata().get(EXTENSION_TYPE_METADATA_KEY).unwrap(),
        "{}"
    );
    let expected = DataType::Struct(Fields::from(vec![
        Field::new("data", DataType::new_list(DataType::UInt8, true), true),
        Field::new(
            "shape",
            DataType::new_fixed_size_list(DataType::Int32, 3, true),
            true,
        ),
    ]));
    assert_eq!(*img.data_type(), expected);
    // Another shape gives another sample of the same schema.
    let other = Tensor::new(&[0_u8; 6], &[2, 1, 3]).unwrap();
    assert_eq!(
        Arrived::new(&camera(&other)).schema.id(),
        arrived.schema.id()
    );
}

#[test]
fn the_order_of_axes_is_kept_and_the_first_decides_for_a_column() {
    let numbers: Vec<i16> = (0..24).collect();
    let fortran = TensorLayout::strided(DType::I16, &[2, 3, 4], &[2, 4, 12]).unwrap();
    let fortran = Tensor::from_bytes(fortran, bytemuck::cast_slice(&numbers)).unwrap();
    let c_order = Tensor::new(&numbers, &[4, 3, 2]).unwrap();
    let mut column = Column::default();
    column.push_tensor(fortran.layout(), &fortran).unwrap();
    column.push_tensor(c_order.layout(), &c_order).unwrap();
    let arrived = Arrived::new(&Record::new(column, "list").unwrap());
    let root = arrived.schema.root();
    assert_eq!(
        root.metadata().get(EXTENSION_TYPE_METADATA_KEY).unwrap(),
        r#"{"permutation":[2,1,0]}"#
    );
    let array = arrived.array();
    let column = tensors(root, &array);
    let first = column.get(0).unwrap().unwrap();
    assert_eq!(&first.layout, fortran.layout());
    assert_eq!(first.elements.typed_data::<i16>(), numbers);
    let second = column.get(1).unwrap().unwrap();
    assert_eq!(
        (second.layout.shape(), &second.layout.strides()[..]),
        (&[4, 3, 2][..], &[2, 8, 24][..])
    );
    assert_eq!(second.elements.typed_data::<i16>()[..5], [0, 6, 12, 18, 2]);
}

#[test]
fn every_type_of_elements_round_trips() {
    let custom = |name: &str, item_bytes| DType::Custom {
        name: name.into(),
        item_bytes,
    };
    let plain = (0..15).map(|code| DType::from_code(code).unwrap());
    let types = plain.chain([
        custom("<M8[ns]", 8),
        custom("<m8[ms]", 8),
        custom("<M8[D]", 8),
        custom("[('x', '<f4'), ('label', '<U3')]", 16),
        custom("|S0", 0),
    ]);
    for dtype in types {
        for shape in [&[][..], &[3], &[3, 0, 5], &[1, 2, 1]] {
            let layout = TensorLayout::contiguous(dtype.clone(), shape).unwrap();
            let bytes: Vec<u8> = (1..=layout.payload_bytes())
                .map(|byte| byte as u8)
                .collect();
            let tensor = Tensor::from_bytes(layout.clone(), &bytes).unwrap();
            let arrived = Arrived::new(&camera(&tensor));
            let array = arrived.array();
            let (img, column) = field(&array, "img");
            let found = tensors(&img, column).get(0).unwrap().unwrap();
            assert_eq!(
                (&found.layout, found.elements.as_slice()),
                (&layout, &bytes[..]),
                "{dtype} {shape:?}"
            );
        }
    }
}

#[test]
fn mixed_types_are_refused_with_both_names() {
    let layout = |dtype, shape: &[usize]| TensorLayout::contiguous(dtype, shape).unwrap();
    let mut column = Column::<()>::default();
    column.push_null();
    column.push_tensor(&layout(DType::U8, &[2, 2]), ()).unwrap();
    let error = column
        .push_tensor(&layout(DType::F32, &[2, 2]), ())
        .unwrap_err();
    let kinds = (Kind::Tensor(DType::U8, 2), Kind::Tensor(DType::F32, 2));
    assert_eq!(
        error,
        ColumnError::Mixed {
            first: kinds.0.clone(),
            found: kinds.1
        }
    );
    let error = column.push_text("a").unwrap_err();
    assert_eq!(
        error,
        ColumnError::Mixed {
            first: kinds.0,
            found: Kind::Text
        }
    );
    assert_eq!(
        column.push_tensor(&layout(DType::U8, &[1 << 31, 0]), ()),
        Err(ColumnError::Elements { elements: 1 << 31 })
    );
    assert_eq!(column.len(), 2);

    let mut integers = Column::<()>::default();
    integers.push_integer(-1).unwrap();
    assert_eq!(integers.push_unsigned(u64::MAX), Err(ColumnError::Integers));
    integers.push_float(0.5).unwrap();
    integers.push_unsigned(u64::MAX).unwrap();
    assert_eq!(integers.kind(), Kind::Float);

    let mut rows = Column::<()>::default();
    let fields = rows.begin_fields().unwrap();
    fields.field("a").unwrap().push_bool(true).unwrap();
    assert_eq!(
        fields.field("a").unwrap_err(),
        ColumnError::Repeated {
            name: "a".to_owned()
        }
    );
}

#[test]
fn an_invalid_type_or_shape_is_refused() {
    let pixels = [7_u8; 12];
    let image = Tensor::new(&pixels, &[2, 2, 3]).unwrap();
    let arrived = Arrived::new(&camera(&image));
    let array = arrived.array();
    let (img, column) = field(&array, "img");
    let with = |parameters: &str| {
        let metadata = img
            .metadata()
            .clone()
            .with(EXTENSION_TYPE_METADATA_KEY, parameters);
        let field = img.clone().with_metadata(metadata);
        TensorColumn::new(&field, column)
            .map(|column| column.is_some())
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        with(r#"{"permutation": [0, 2, 1], "dim_names": ["a", "b", "c"]}"#),
        Ok(true)
    );
    assert_eq!(with(""), Ok(true));
    for parameters in [
        "[]",
        "{",
        r#"{"permutation": [0, 1]}"#,
        r#"{"permutation": [0, 1, 1]}"#,
    ] {
        let error = with(parameters).unwrap_err();
        let expected = "the field \"img\" has the extension type of tensors but is not valid: its metadata is wrong";
        assert_eq!(error, expected);
    }
    let name = Metadata::new().with(EXTENSION_TYPE_NAME_KEY, "arrow.variable_shape_tensor");
    let (t, numbers) = field(&array, "t");
    assert!(TensorColumn::new(&t.with_metadata(name), numbers).is_err());

    for shape in [
        [2, 2, 2],
        [-2, -2, 3],
        [i32::MAX, i32::MAX, i32::MAX],
        [0, 2, 3],
    ] {
        let mut payload = arrived.payload.to_vec();
        let at = (0..payload.len() - 12)
            .find(|&at| payload[at..at + 12] == *bytemuck::cast_slice::<i32, u8>(&[2, 2, 3]))
            .unwrap();
        payload[at..at + 12].copy_from_slice(bytemuck::cast_slice(&shape));
        let array = read(&arrived.layout, &arrived.schema, &payload_buffer(payload)).unwrap();
        let (img, column) = field(&array, "img");
        let error = tensors(&img, column).get(0).unwrap_err();
        assert_eq!(
            error,
            TensorColumnError::Shape {
                shape: shape.to_vec(),
                elements: 12
            }
        );
    }
}

/// A value of one of a few types, so that most lists have elements of one type.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Node>),
    Fields(Vec<(String, Node)>),
    Tensor(Vec<usize>, bool),
}

pub(super) const PIXELS: [u8; 4096] = [5; 4096];

pub(super) fn push(column: &mut Column<Tensor<'static>>, node: &Node) -> Result<(), ColumnError> {
    match node {
        Node::Null => column.push_null(),
        Node::Bool(value) => column.push_bool(*value)?,
        Node::Integer(value) => column.push_integer(*value)?,
        Node::Float(value) => column.push_float(*value)?,
        Node::Text(value) => column.push_text(value)?,
        Node::Bytes(value) => column.push_bytes(value)?,
        Node::List(items) => {
            let column_of_items = column.begin_list()?;
            items
                .iter()
                .try_for_each(|item| push(column_of_items, item))?;
            column.end_list();
        }
        Node::Fields(values) => {
            let fields = column.begin_fields()?;
            values
                .iter()
                .try_for_each(|(name, value)| push(fields.field(name)?, value))?;
            column.end_fields();
        }
        Node::Tensor(shape, is_wide) => {
            let dtype = if *is_wide { DType::F32 } else { DType::U8 };
            let layout = TensorLayout::contiguous(dtype, shape).unwrap();
            let bytes = &PIXELS[..layout.payload_bytes()];
            column.push_tensor(&layout, Tensor::from_bytes(layout.clone(), bytes).unwrap())?;
        }
    }
    Ok(())
}

pub(super) fn nodes() -> impl Strategy<Value = Node> {
    let shape = proptest::collection::vec(0..8_usize, 0..4);
    let leaf = prop_oneof![
        Just(Node::Null),
        any::<bool>().prop_map(Node::Bool),
        any::<i64>().prop_map(Node::Integer),
        any::<f64>().prop_map(Node::Float),
        ".{0,20}".prop_map(Node::Text),
        proptest::collection::vec(any::<u8>(), 0..100).prop_map(Node::Bytes),
        (shape, any::<bool>()).prop_map(|(shape, is_wide)| Node::Tensor(shape, is_wide)),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let fields = proptest::collection::vec(("[ab]", inner.clone()), 0..3);
        prop_oneof![
            // Repeated values of one type, with nulls.
            (inner, 0..5_usize).prop_map(|(node, count)| Node::List(
                (0..count)
                    .map(|index| if index == 1 { Node::Null } else { node.clone() })
                    .collect()
            )),
            fields.prop_map(Node::Fields),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A record is laid out exactly as [`Plan`] lays out the array that is read from it.
    #[test]
    fn a_record_is_laid_out_like_the_array_read_from_it(node in nodes()) {
        let mut column = Column::default();
        if push(&mut column, &node).is_err() {
            return Ok(());
        }
        let record = Record::new(column, "dict").unwrap();
        let arrived = Arrived::new(&record);
        prop_assert_eq!(arrived.schema.root().metadata().get(PYTHON_KIND).unwrap(), "dict");
        let array = arrived.array();
        array.validate_full().unwrap();
        let plan = Plan::new(&array).unwrap();
        prop_assert_eq!(plan.layout(), &arrived.layout);
        let mut payload = vec![0; plan.payload_bytes()];
        plan.write(&mut payload);
        prop_assert_eq!(&payload[..], arrived.payload.as_slice());
    }
}
