//! Random arrays of random types, sliced at every level, are written to a payload and read back,
//! with and without damage.

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, BufferSpec, ByteView};
use arrow_schema::{
    DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit, UnionFields, UnionMode,
};
use fastrand::Rng;
use proptest::prelude::*;

use super::*;
use crate::schema::Schema;
use crate::view::payload_buffer;

/// A payload as in shared memory: of the full length, and aligned.
fn payload_of(plan: &Plan<'_>) -> Buffer {
    let mut payload = arrow_buffer::MutableBuffer::from_len_zeroed(plan.payload_bytes());
    plan.write(payload.as_slice_mut());
    let mut over_rubbish = vec![0xaa; plan.payload_bytes()];
    plan.write(&mut over_rubbish);
    assert_eq!(
        over_rubbish,
        payload.as_slice(),
        "all earlier content is overwritten"
    );
    payload_buffer(Buffer::from(payload))
}

fn schema_of(data_type: &DataType) -> Schema {
    Schema::array(Field::new("", data_type.clone(), true)).unwrap()
}

fn round_trip(array: &ArrayData) -> ArrayData {
    let plan = Plan::new(array).unwrap();
    read(
        plan.layout(),
        &schema_of(array.data_type()),
        &payload_of(&plan),
    )
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arrays_round_trip(data_type in types(), length in 0..40_usize, seed: u64) {
        let array = Random::new(seed).array(&data_type, length, true);
        array.validate_full().unwrap();
        let copy = round_trip(&array);
        copy.validate_full().unwrap();
        prop_assert_eq!(copy.len(), length);
        prop_assert!(copy == array, "sent {:?}\ngot {:?}", array, copy);
    }

    #[test]
    fn placements_match_the_buffers_of_the_reader(
        data_type in types(), length in 0..40_usize, seed: u64,
    ) {
        let array = Random::new(seed).array(&data_type, length, true);
        let plan = Plan::new(&array).unwrap();
        let payload = payload_of(&plan);
        match Placement::new(plan.layout(), &data_type, payload.len()) {
            Err(PlacementError::Dictionary) => {}
            placement => {
                let placement = placement.unwrap();
                let copy = read(plan.layout(), &schema_of(&data_type), &payload).unwrap();
                let mut buffers = placement.buffers.iter().map(|place| &payload[place.clone()]);
                let mut nodes = placement.nodes.iter();
                assert_placed(&copy, &mut nodes, &mut buffers);
                prop_assert_eq!((nodes.len(), buffers.len()), (0, 0));
            }
        }
    }

    #[test]
    fn damage_is_refused_or_gives_a_valid_array(
        data_type in types(), length in 0..20_usize, seed: u64,
        at: prop::sample::Index, byte: u8, in_head: bool,
    ) {
        let array = Random::new(seed).array(&data_type, length, true);
        let plan = Plan::new(&array).unwrap();
        let schema = schema_of(&data_type);
        let (mut layout, mut payload) = (plan.layout().clone(), payload_of(&plan).to_vec());
        let target = if in_head { layout.numbers.as_mut_slice() } else { payload.as_mut_slice() };
        if !target.is_empty() {
            let at = at.index(target.len());
            target[at] = byte;
        }
        if let Ok(placement) = Placement::new(&layout, &data_type, payload.len()) {
            prop_assert!(placement.buffers.iter().all(|place| place.end <= payload.len()));
        }
        if let Ok(array) = read(&layout, &schema, &payload_buffer(payload)) {
            array.validate_full().unwrap();
        }
    }

    #[test]
    fn arrays_without_validation_are_refused_or_sent(
        data_type in types(), length in 0..20_usize, seed: u64, part: prop::sample::Index, damage in 0..6,
    ) {
        let mut random = Random::new(seed);
        let array = random.array(&data_type, length, true);
        let broken = broken(&array, &mut random, part, damage);
        let Ok(plan) = Plan::new(&broken) else { return Ok(()) };
        if let Ok(array) = read(plan.layout(), &schema_of(&data_type), &payload_of(&plan)) {
            array.validate_full().unwrap();
        }
    }

    #[test]
    fn damage_during_and_after_reading_never_reaches_validated_bytes(
        data_type in types(), length in 0..20_usize, seed: u64,
    ) {
        let array = Random::new(seed).array(&data_type, length, true);
        let plan = Plan::new(&array).unwrap();
        let payload = payload_of(&plan);
        let read_back = read(plan.layout(), &schema_of(&data_type), &payload).unwrap();
        let place = payload.as_ptr_range();
        assert_private(&read_back, &|buffer| !place.contains(&buffer.as_ptr()));
    }

    #[test]
    fn schemas_round_trip(data_type in types(), nullable: bool) {
        let field = Field::new("Größe", data_type, nullable).with_metadata(
            arrow_schema::Metadata::new().with("unit", "m").with("", "empty key"));
        let schema = Schema::array(field.clone()).unwrap();
        let copy = Schema::decode(schema.bytes()).unwrap();
        prop_assert_eq!(copy.root(), &field);
        prop_assert_eq!(copy.id(), schema.id());
    }

    #[test]
    fn damaged_schemas_are_refused_or_valid(
        data_type in types(), at: prop::sample::Index, byte: u8, seed: u64,
    ) {
        let schema = schema_of(&data_type);
        let mut bytes = schema.bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let Ok(damaged) = Schema::decode(&bytes) else { return Ok(()) };
        let again = Schema::array(damaged.root().clone()).unwrap();
        prop_assert_eq!(again.root(), damaged.root());
        // Arrays of another type must not be read by this schema.
        let array = Random::new(seed).array(&data_type, 5, true);
        let plan = Plan::new(&array).unwrap();
        if let Ok(array) = read(plan.layout(), &damaged, &payload_of(&plan)) {
            array.validate_full().unwrap();
        }
    }

    #[test]
    fn any_bytes_are_a_schema_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Schema::decode(&bytes);
    }
}

/// Asserts the positions in Arrow's order: an array, its validity, its other buffers, its children.
fn assert_placed<'a>(
    array: &ArrayData,
    nodes: &mut impl Iterator<Item = &'a Node>,
    buffers: &mut impl Iterator<Item = &'a [u8]>,
) {
    let node = nodes.next().unwrap();
    assert_eq!(
        (node.length, node.validity.is_some()),
        (array.len(), array.nulls().is_some())
    );
    if arrow_data::layout(array.data_type()).can_contain_null_mask {
        let validity = array
            .nulls()
            .map_or(&[][..], |nulls| nulls.buffer().as_slice());
        assert_eq!(buffers.next().unwrap(), validity);
    }
    for buffer in array.buffers() {
        assert_eq!(buffers.next().unwrap(), buffer.as_slice());
    }
    array
        .child_data()
        .iter()
        .for_each(|child| assert_placed(child, nodes, buffers));
}

/// The array with one part changed, at any depth, as a faulty producer in another language could
/// have left it.
fn broken(
    array: &ArrayData,
    random: &mut Random,
    part: prop::sample::Index,
    damage: i32,
) -> ArrayData {
    let (mut length, mut offset) = (array.len(), array.offset());
    let (mut buffers, mut children) = (array.buffers().to_vec(), array.child_data().to_vec());
    match damage {
        0 => length = random.0.usize(..) >> random.below(64),
        1 => offset = random.0.usize(..) >> random.below(64),
        2 if !buffers.is_empty() => {
            let index = part.index(buffers.len());
            let mut bytes = buffers[index].to_vec();
            if !bytes.is_empty() {
                let at = random.below(bytes.len());
                bytes[at] = random.0.u8(..);
            }
            buffers[index] = Buffer::from(bytes.as_slice());
        }
        3 if !buffers.is_empty() => {
            let index = part.index(buffers.len());
            let bytes = random.below(buffers[index].len() + 1);
            buffers[index] = buffers[index].slice_with_length(0, bytes);
        }
        4 if buffers.len() + children.len() > 0 => {
            buffers.pop();
            children.pop();
        }
        _ if !children.is_empty() => {
            let index = part.index(children.len());
            let damage = random.below(6) as i32;
            children[index] = broken(&children[index], random, part, damage);
        }
        _ => {}
    }
    let builder = ArrayData::builder(array.data_type().clone())
        .len(length)
        .offset(offset)
        .buffers(buffers);
    let builder = builder.child_data(children).nulls(array.nulls().cloned());
    #[expect(
        unsafe_code,
        reason = "arrays that come from other languages are not validated either"
    )]
    // SAFETY: Only `Plan` reads the array, and it validates every part that it uses.
    unsafe {
        builder.build_unchecked()
    }
}

/// Asserts that everything but fixed-width values and binary values is in private memory.
fn assert_private(array: &ArrayData, is_private: &impl Fn(&Buffer) -> bool) {
    use DataType::*;
    if let Some(nulls) = array.nulls() {
        assert!(
            is_private(nulls.buffer()),
            "validity of {}",
            array.data_type()
        );
    }
    let shared = match array.data_type() {
        Binary | LargeBinary | BinaryView => 1..array.buffers().len(),
        Boolean | Utf8 | LargeUtf8 | Utf8View | List(_) | LargeList(_) | ListView(_)
        | LargeListView(_) | Map(..) | Union(..) | Dictionary(..) | RunEndEncoded(..) => 0..0,
        _ => 0..array.buffers().len(),
    };
    for (index, buffer) in array
        .buffers()
        .iter()
        .enumerate()
        .filter(|(_, buffer)| !buffer.is_empty())
    {
        assert!(
            is_private(buffer) != shared.contains(&index),
            "buffer {index} of {}",
            array.data_type()
        );
    }
    let children = match array.data_type() {
        RunEndEncoded(..) => {
            assert!(array.child_data()[0].buffers().iter().all(is_private));
            &array.child_data()[1..]
        }
        _ => array.child_data(),
    };
    children
        .iter()
        .for_each(|child| assert_private(child, is_private));
}

#[test]
fn only_the_used_part_is_sent() {
    let values = Buffer::from_vec((0..1_000_000_i64).collect::<Vec<_>>());
    let all = ArrayData::builder(DataType::Int64)
        .len(1_000_000)
        .add_buffer(values)
        .build()
        .unwrap();
    let slice = all.slice(500_000, 10);
    let plan = Plan::new(&slice).unwrap();
    assert_eq!(plan.payload_bytes(), 80);
    assert_eq!(
        round_trip(&slice).buffers()[0].typed_data::<i64>()[0],
        500_000
    );

    let item: FieldRef = Field::new_list_field(DataType::Int64, false).into();
    let lists = ArrayData::builder(DataType::List(item)).len(3);
    let lists = lists
        .add_buffer(Buffer::from_vec(vec![5_i32, 10, 20, 30]))
        .add_child_data(all)
        .build()
        .unwrap();
    let plan = Plan::new(&lists).unwrap();
    assert_eq!(plan.payload_bytes(), 64 + 25 * 8);
    assert_eq!(
        round_trip(&lists).buffers()[0].typed_data::<i32>(),
        [0, 5, 15, 25]
    );
}

#[test]
fn a_small_record_batch_stays_small() {
    let names = ["x", "y", "z"];
    let fields: Fields = names
        .into_iter()
        .map(|name| Field::new(name, DataType::Float64, false))
        .collect();
    let column = ArrayData::builder(DataType::Float64)
        .len(1)
        .add_buffer(Buffer::from_vec(vec![1.0]))
        .build()
        .unwrap();
    let batch = ArrayData::builder(DataType::Struct(fields))
        .len(1)
        .child_data(vec![column; 3])
        .build()
        .unwrap();
    let plan = Plan::new(&batch).unwrap();
    assert_eq!(plan.payload_bytes(), 24);
    let mut head = Head::new();
    plan.layout().write(&mut head);
    assert!(head.len() <= 8, "{head:?}");
}

#[test]
fn values_lie_in_the_payload_itself() {
    let array = ArrayData::builder(DataType::Float32)
        .len(64)
        .add_buffer(Buffer::from_vec(vec![0.5_f32; 64]));
    let array = array.build().unwrap();
    let plan = Plan::new(&array).unwrap();
    let payload = payload_of(&plan);
    let copy = read(plan.layout(), &schema_of(&DataType::Float32), &payload).unwrap();
    assert_eq!(copy.buffers()[0].as_ptr(), payload.as_ptr());
}

#[test]
fn payloads_of_other_lengths_than_the_head_describes_are_refused() {
    let array = ArrayData::builder(DataType::Int16)
        .len(3)
        .add_buffer(Buffer::from_vec(vec![1_i16, 2, 3]));
    let array = array.build().unwrap();
    let plan = Plan::new(&array).unwrap();
    let schema = schema_of(&DataType::Int16);
    let payload = payload_of(&plan).to_vec();
    for found in [0, 5, 7] {
        let mut payload = payload.clone();
        payload.resize(found, 0);
        let error = read(plan.layout(), &schema, &payload_buffer(payload)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the head describes 6 bytes of payload, there are {found}")
        );
    }
}

#[test]
fn the_view_of_a_null_is_not_sent() {
    let views = Buffer::from_vec(vec![u128::MAX, 0]);
    let array = ArrayData::builder(DataType::Utf8View)
        .len(2)
        .add_buffer(views);
    let array = array.nulls(Some(NullBuffer::from(vec![false, true])));
    #[expect(
        unsafe_code,
        reason = "other languages leave any value in the view of a null"
    )]
    // SAFETY: Only `Plan` reads the array, and it validates every part that it uses.
    let array = unsafe { array.build_unchecked() };
    let copy = round_trip(&array);
    copy.validate_full().unwrap();
    assert_eq!(copy.buffers()[0].typed_data::<u128>(), [0, 0]);
}

#[test]
fn rows_without_payload_are_limited() {
    let rows = ArrayData::new_null(&DataType::Null, MAX_WEIGHTLESS_LENGTH + 1);
    assert!(matches!(Plan::new(&rows), Err(PlanError::Length { .. })));
    let layout = ArrayLayout {
        length: usize::MAX,
        numbers: Head::new(),
    };
    let nothing = payload_buffer([]);
    assert!(matches!(
        read(&layout, &schema_of(&DataType::Null), &nothing),
        Err(ArrayError::Length { .. })
    ));
    let layout = ArrayLayout {
        length: MAX_WEIGHTLESS_LENGTH,
        numbers: Head::new(),
    };
    read(&layout, &schema_of(&DataType::Null), &nothing).unwrap();
}

#[test]
fn a_mismatched_schema_is_named() {
    let array = ArrayData::new_empty(&DataType::Int8);
    let schema = schema_of(&DataType::Utf8);
    let error = ArraySample::new(&array, &schema).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected an array of type Utf8, got Int8"
    );
}

fn types() -> impl Strategy<Value = DataType> {
    use DataType::*;
    let leaf = prop::sample::select(vec![
        Null,
        Boolean,
        Int8,
        UInt16,
        Int32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())),
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Second, Some("".into())),
        Duration(TimeUnit::Microsecond),
        Interval(IntervalUnit::YearMonth),
        Interval(IntervalUnit::DayTime),
        Interval(IntervalUnit::MonthDayNano),
        Decimal32(9, 2),
        Decimal64(18, -3),
        Decimal128(38, 10),
        Decimal256(76, 20),
        FixedSizeBinary(0),
        FixedSizeBinary(5),
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
    ]);
    leaf.prop_recursive(4, 12, 3, |inner| {
        let field = inner
            .clone()
            .prop_map(|inner| FieldRef::from(Field::new_list_field(inner, true)));
        let fields = proptest::collection::vec(inner.clone(), 0..4);
        let union_fields = proptest::collection::vec(inner.clone(), 1..4).prop_map(|types| {
            let ids = (0..types.len() as i8).map(|id| id * 7 + 3);
            let fields = types
                .into_iter()
                .enumerate()
                .map(|(index, inner)| Field::new(index.to_string(), inner, true));
            UnionFields::try_new(ids, fields).unwrap()
        });
        prop_oneof![
            field.clone().prop_map(List),
            field.clone().prop_map(LargeList),
            field.clone().prop_map(ListView),
            field.clone().prop_map(LargeListView),
            (field.clone(), 0..4).prop_map(|(field, size)| FixedSizeList(field, size)),
            fields.prop_map(|types| {
                let fields = types.into_iter().enumerate();
                Struct(
                    fields
                        .map(|(index, inner)| Field::new(format!("f{index}"), inner, true))
                        .collect(),
                )
            }),
            union_fields
                .clone()
                .prop_map(|fields| Union(fields, UnionMode::Sparse)),
            union_fields.prop_map(|fields| Union(fields, UnionMode::Dense)),
            (
                prop::sample::select(vec![Int8, UInt8, Int16, Int32, UInt32, Int64, UInt64]),
                inner.clone()
            )
                .prop_map(|(key, value)| Dictionary(key.into(), value.into())),
            inner.clone().prop_map(|value| {
                let entries = vec![
                    Field::new("keys", Utf8, false),
                    Field::new("values", value, true),
                ];
                Map(
                    Arc::new(Field::new("entries", Struct(entries.into()), false)),
                    false,
                )
            }),
            (prop::sample::select(vec![Int16, Int32, Int64]), field).prop_map(|(ends, values)| {
                RunEndEncoded(Arc::new(Field::new("run_ends", ends, false)), values)
            }),
        ]
    })
}

/// Draws arrays: an array is determined by its type, length and seed.
struct Random(Rng);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill(&mut bytes);
        bytes
    }

    fn text(&mut self) -> String {
        let length = if self.below(3) == 0 {
            13 + self.below(9)
        } else {
            self.below(12)
        };
        (0..length)
            .map(|_| ['a', 'ü', '視', '🤖'][self.below(4)])
            .collect()
    }

    /// An array of the given length, sliced from a longer one.
    fn array(&mut self, data_type: &DataType, length: usize, nullable: bool) -> ArrayData {
        let (before, after) = if self.below(2) == 0 {
            (0, 0)
        } else {
            (self.below(12), self.below(5))
        };
        self.whole(data_type, before + length + after, nullable)
            .slice(before, length)
    }

    fn whole(&mut self, data_type: &DataType, length: usize, nullable: bool) -> ArrayData {
        use DataType::*;
        let layout = arrow_data::layout(data_type);
        let mut array = ArrayData::builder(data_type.clone()).len(length);
        let mut valid = None;
        if layout.can_contain_null_mask && nullable && self.below(2) == 0 {
            valid = Some(NullBuffer::new(BooleanBuffer::collect_bool(length, |_| {
                self.below(3) > 0
            })));
            array = array.nulls(valid.clone());
        }
        let array = match data_type {
            Boolean => array.add_buffer(self.bytes(length.div_ceil(8)).into()),
            Utf8 | LargeUtf8 | Binary | LargeBinary => {
                let values: Vec<_> = (0..=length).map(|_| self.text().into_bytes()).collect();
                let mut end = 0;
                let offsets = values.iter().map(|value| {
                    end += value.len() as i64;
                    end
                });
                let offsets = words(data_type, offsets);
                array.add_buffer(offsets).add_buffer(values.concat().into())
            }
            Utf8View | BinaryView => self.views(array, length, valid.as_ref()),
            List(item) | LargeList(item) | Map(item, _) => {
                let mut end = self.below(4);
                let offsets: Vec<_> = (0..=length)
                    .map(|_| {
                        end += self.below(4);
                        end as i64
                    })
                    .collect();
                let items = end + self.below(4);
                let child = self.array(item.data_type(), items, item.is_nullable());
                array
                    .add_buffer(words(data_type, offsets.into_iter()))
                    .add_child_data(child)
            }
            ListView(item) | LargeListView(item) => {
                let items = self.below(30);
                let spans: Vec<_> = (0..length)
                    .map(|_| {
                        let offset = self.below(items + 1);
                        (offset as i64, self.below(items - offset + 1) as i64)
                    })
                    .collect();
                let offsets = words(data_type, spans.iter().map(|span| span.0));
                let sizes = words(data_type, spans.iter().map(|span| span.1));
                let child = self.array(item.data_type(), items, true);
                array
                    .add_buffer(offsets)
                    .add_buffer(sizes)
                    .add_child_data(child)
            }
            FixedSizeList(item, size) => {
                array.add_child_data(self.array(item.data_type(), length * *size as usize, true))
            }
            Struct(fields) => array.child_data(
                fields
                    .iter()
                    .map(|field| self.array(field.data_type(), length, field.is_nullable()))
                    .collect(),
            ),
            Dictionary(_, values) => {
                let count = 1 + self.below(9);
                let keys: Vec<_> = (0..length).map(|_| self.below(count) as i64).collect();
                array
                    .add_buffer(words(data_type, keys.into_iter()))
                    .add_child_data(self.array(values, count, true))
            }
            Union(fields, mode) => {
                let ids: Vec<i8> = fields.iter().map(|(id, _)| id).collect();
                let picks: Vec<_> = (0..length).map(|_| self.below(ids.len())).collect();
                let array = array.add_buffer(picks.iter().map(|&pick| ids[pick]).collect());
                let (array, child) = match mode {
                    UnionMode::Sparse => (array, length),
                    UnionMode::Dense => {
                        let offsets: Buffer = picks.iter().map(|_| self.below(7) as i32).collect();
                        (array.add_buffer(offsets), 7)
                    }
                };
                array.child_data(
                    fields
                        .iter()
                        .map(|(_, field)| self.array(field.data_type(), child, true))
                        .collect(),
                )
            }
            RunEndEncoded(ends, values) => {
                let (mut end, mut run_ends) = (0, Vec::new());
                while end < length {
                    end += 1 + self.below(5);
                    run_ends.push(end as i64);
                }
                let runs = run_ends.len();
                let ends = ArrayData::builder(ends.data_type().clone())
                    .len(runs)
                    .add_buffer(words(ends.data_type(), run_ends.into_iter()));
                array
                    .add_child_data(ends.build().unwrap())
                    .add_child_data(self.array(values.data_type(), runs, true))
            }
            _ => {
                let mut array = array;
                for spec in &layout.buffers {
                    let BufferSpec::FixedWidth { byte_width, .. } = spec else {
                        panic!("{data_type}")
                    };
                    array =
                        array.add_buffer(Buffer::from(self.bytes(length * byte_width).as_slice()));
                }
                array
            }
        };
        array.build().unwrap()
    }

    fn views(
        &mut self,
        array: arrow_data::ArrayDataBuilder,
        length: usize,
        valid: Option<&NullBuffer>,
    ) -> arrow_data::ArrayDataBuilder {
        let mut data = [Vec::new(), Vec::new(), Vec::new()];
        let views: Vec<u128> = (0..length)
            .map(|index| {
                let text = self.text();
                if valid.is_some_and(|valid| valid.is_null(index)) {
                    return 0;
                }
                match text.len() {
                    short @ 0..=12 => {
                        let mut view = [0; 16];
                        view[..4].copy_from_slice(&(short as u32).to_le_bytes());
                        view[4..][..short].copy_from_slice(text.as_bytes());
                        u128::from_le_bytes(view)
                    }
                    long => {
                        let buffer = self.below(3);
                        let offset = data[buffer].len() as u32;
                        data[buffer].extend_from_slice(text.as_bytes());
                        ByteView::new(long as u32, &text.as_bytes()[..4])
                            .with_buffer_index(buffer as u32)
                            .with_offset(offset)
                            .into()
                    }
                }
            })
            .collect();
        array
            .add_buffer(Buffer::from_vec(views))
            .add_buffers(data.map(Buffer::from))
    }
}

/// Integers of the width of the type's first buffer.
fn words(data_type: &DataType, words: impl Iterator<Item = i64>) -> Buffer {
    let BufferSpec::FixedWidth { byte_width, .. } = arrow_data::layout(data_type).buffers[0] else {
        panic!("{data_type} starts with integers")
    };
    let bytes: Vec<u8> = words
        .flat_map(|word| word.to_le_bytes()[..byte_width].to_vec())
        .collect();
    Buffer::from(bytes.as_slice())
}
