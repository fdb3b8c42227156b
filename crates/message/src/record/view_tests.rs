use arrow_schema::{DataType, Field, Fields};
use proptest::prelude::*;

use super::tests::{Arrived, Node, PIXELS, nodes, push};
use super::*;
use crate::array::ArrayLayout;
use crate::layout::Scalar;
use crate::schema::Schema;
use crate::wire::{Head, put_number};

/// The value of a column in a row, with all values in it.
fn node(view: RecordView<'_>, column: usize, row: usize) -> Result<Node, RecordViewError> {
    Ok(match view.value(column, row)? {
        RecordValue::Null => Node::Null,
        RecordValue::Scalar(Scalar::Bool(value)) => Node::Bool(value),
        RecordValue::Scalar(Scalar::Integer(value)) => Node::Integer(value),
        RecordValue::Scalar(Scalar::Unsigned(value)) => Node::Integer(value as i64),
        RecordValue::Scalar(Scalar::Float(value)) => Node::Float(value),
        RecordValue::Text(text) => Node::Text(String::from_utf8_lossy(text).into_owned()),
        RecordValue::Bytes(bytes) => Node::Bytes(bytes.to_vec()),
        RecordValue::List(items) => Node::List(list(view, items)?),
        RecordValue::Record => {
            let field = |child| {
                let name = view.columns().column(child).name().to_owned();
                node(view, child, row).map(|value| (name, value))
            };
            let fields = view.columns().children(column).map(field);
            Node::Fields(fields.collect::<Result<_, _>>()?)
        }
        RecordValue::Tensor(layout, bytes) => {
            assert_eq!(bytes.len(), layout.payload_bytes());
            let is_wide = layout.dtype().item_bytes() == 4;
            assert!(bytes.iter().all(|byte| *byte == PIXELS[0]));
            Node::Tensor(layout.shape().to_vec(), is_wide)
        }
        RecordValue::Other => panic!("records have no other values"),
    })
}

fn list(view: RecordView<'_>, items: Items) -> Result<Vec<Node>, RecordViewError> {
    let rows = items.rows;
    rows.map(|row| node(view, items.column, row)).collect()
}

fn whole(arrived: &Arrived, places: &mut RecordPlaces) -> Result<Node, RecordViewError> {
    let columns = RecordColumns::new(&arrived.schema).unwrap();
    places.find(&columns, &arrived.layout, arrived.payload.len())?;
    let view = RecordView::new(&columns, places, &arrived.payload);
    match view.list() {
        Some(items) => list(view, items).map(Node::List),
        None => node(view, 0, 0),
    }
}

fn sent(node: &Node) -> Option<Arrived> {
    let mut column = Column::default();
    push(&mut column, node).ok()?;
    let kind = if matches!(node, Node::Fields(_)) {
        "dict"
    } else {
        "list"
    };
    Some(Arrived::new(&Record::new(column, kind).unwrap()))
}

fn shown(node: &Node) -> String {
    format!("{node:?}")
}

#[test]
fn types_that_records_do_not_have_are_refused_by_field() {
    let dictionary = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
    let fields = Fields::from(vec![Field::new("label", dictionary, true)]);
    let schema = Schema::of_type(DataType::Struct(fields)).unwrap();
    let error = RecordColumns::new(&schema).unwrap_err().to_string();
    assert!(
        error.starts_with("the field `label` has Arrow's type Dictionary"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_view_has_the_values_that_were_sent(sample in nodes()) {
        let Some(arrived) = sent(&sample) else { return Ok(()) };
        let expected = match sample {
            Node::Fields(_) => sample,
            other => Node::List(vec![other]),
        };
        let found = whole(&arrived, &mut RecordPlaces::default()).unwrap();
        prop_assert_eq!(shown(&found), shown(&expected));
    }

    /// The head, the length or the payload is another one. Reading ends, in bounds, or is refused.
    #[test]
    fn a_hostile_record_is_read_in_bounds_or_refused(
        sample in nodes(),
        change in 0..3,
        at in any::<prop::sample::Index>(),
        number in prop_oneof![0..70_u64, any::<u64>()],
        byte in any::<u8>(),
    ) {
        let Some(mut arrived) = sent(&sample) else { return Ok(()) };
        match change {
            0 => {
                let numbers: Vec<u64> = arrived.layout.numbers().collect();
                if numbers.is_empty() { return Ok(()) }
                let mut head = Head::new();
                for (index, known) in numbers.iter().enumerate() {
                    put_number(&mut head, if index == at.index(numbers.len()) { number } else { *known });
                }
                arrived.layout = ArrayLayout { length: arrived.layout.length, numbers: head };
            }
            1 => arrived.layout.length = number as usize,
            _ => {
                let mut payload = arrived.payload.to_vec();
                if payload.is_empty() { return Ok(()) }
                let at = at.index(payload.len());
                payload[at] = byte;
                arrived.payload = payload.into();
            }
        }
        let columns = RecordColumns::new(&arrived.schema).unwrap();
        let mut places = RecordPlaces::default();
        if places.find(&columns, &arrived.layout, arrived.payload.len()).is_err() {
            return Ok(());
        }
        let view = RecordView::new(&columns, &places, &arrived.payload);
        // Every row of every column, reachable or not.
        for column in 0..columns.columns.len() {
            let is_part_of_tensor = (0..column).any(|outer| {
                let known = &columns.columns[outer];
                matches!(known.kind, ColumnKind::Tensor { .. }) && known.end > column
            });
            for row in 0..view.length(column).min(100) {
                if !is_part_of_tensor {
                    read_all(view, column, row);
                }
            }
        }
    }
}

/// Reads a value. Numbers and bytes may be any.
fn read_all(view: RecordView<'_>, column: usize, row: usize) {
    match view.value(column, row) {
        Ok(RecordValue::List(items)) => {
            assert!(items.rows.end <= view.length(items.column));
        }
        Ok(RecordValue::Tensor(layout, bytes)) => assert_eq!(bytes.len(), layout.payload_bytes()),
        _ => {}
    }
}

#[test]
fn paths_lead_to_values() {
    let pose = Node::Fields(vec![
        ("x".to_owned(), Node::Float(1.5)),
        ("at".to_owned(), Node::Null),
    ]);
    let record = Node::Fields(vec![
        ("pose".to_owned(), pose.clone()),
        (
            "ranges".to_owned(),
            Node::List(vec![Node::Integer(7), Node::Integer(8)]),
        ),
        ("poses".to_owned(), Node::List(vec![pose])),
        ("image".to_owned(), Node::Tensor(vec![2, 3], false)),
    ]);
    let arrived = sent(&record).unwrap();
    let columns = RecordColumns::new(&arrived.schema).unwrap();
    let mut places = RecordPlaces::default();
    places
        .find(&columns, &arrived.layout, arrived.payload.len())
        .unwrap();
    let view = RecordView::new(&columns, &places, &arrived.payload);
    let find = |path: &str, loops: &[usize]| {
        let path: RecordPath = path.parse().unwrap();
        assert_eq!(path.to_string().parse(), Ok(path.clone()));
        let found = view.find(&path, loops);
        found.map(|found| format!("{:?}", found.value))
    };
    for (path, loops, expected) in [
        ("pose.x", &[][..], "Scalar(Float(1.5))"),
        ("ranges[1]", &[], "Scalar(Integer(8))"),
        ("ranges[]", &[1], "Scalar(Integer(8))"),
        ("poses[0].x", &[], "Scalar(Float(1.5))"),
        ("pose.at.deeper[3]", &[], "Null"),
    ] {
        assert_eq!(find(path, loops).unwrap(), expected, "{path}");
    }
    for (path, loops) in [
        ("image[1][2]", &[][..]),
        ("image[][2]", &[1]),
        ("image[][]", &[1, 2]),
    ] {
        assert!(find(path, loops).unwrap().starts_with("Scalar"));
    }
    for (path, expected) in [
        ("pose.z", "`pose` has no field `z`"),
        ("pos", "the sample has no field `pos`"),
        ("ranges[2]", "`ranges` has 2 items, so there is no [2]"),
        ("image[0][3]", "`image` has 3 items, so there is no [3]"),
        (
            "image[0].x",
            "`image` is a tensor of u1 with 2 dimensions, which has no fields",
        ),
        ("pose[0]", "`pose` is a record, which has no items"),
        ("ranges.x", "`ranges` is a list, which has no fields"),
    ] {
        assert_eq!(find(path, &[]).unwrap_err().to_string(), expected);
    }
    let Err(PathMiss::Field { known, .. }) = view.find(&"pose.z".parse().unwrap(), &[]) else {
        panic!("expected a missing field")
    };
    assert_eq!(known, ["x", "at"]);
}

#[test]
fn other_texts_are_no_paths() {
    for (text, reason) in [
        ("", "it is empty"),
        (".x", "it begins with a dot"),
        ("a..b", "a name is empty"),
        ("a[1", "a bracket is open"),
        ("a[x]", "an index is a whole number"),
        ("a[1]b", "a dot is missing"),
        ("a]", "a dot is missing"),
    ] {
        let error = text.parse::<RecordPath>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}
