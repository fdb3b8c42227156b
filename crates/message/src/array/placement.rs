//! The positions of the parts of an array in its payload, for describing them in another format.
//!
//! The buffers of a payload are in the order of Arrow's columnar format. So a payload can be the
//! body of an IPC message whose metadata gives the position of each buffer.

use std::ops::Range;

use arrow_data::BufferSpec;
use arrow_schema::{DataType, UnionMode};

use super::{ArrayLayout, BITS, Places, length_fits};
use crate::wire::{DecodeError, Reader};

/// The positions of the parts of an array in its payload. Every range is within the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The array and its children, depth first.
    pub nodes: Vec<Node>,
    /// The buffers of all nodes, in the order of Arrow's columnar format. The range is empty for a
    /// validity bitmap that the array could have but does not.
    pub buffers: Vec<Range<usize>>,
    /// The number of data buffers of each array of views.
    pub view_buffers: Vec<usize>,
}

/// An array, or a child of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of elements.
    pub length: usize,
    /// Position of the validity bitmap; `None` without one.
    pub validity: Option<Range<usize>>,
    /// Whether the type is null: all elements are null, without a bitmap.
    pub is_null: bool,
}

/// Why the positions cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// The head is damaged.
    #[error(transparent)]
    Head(#[from] DecodeError),
    /// The head describes more than the payload holds, or than it can hold.
    #[error("the array's head does not fit its payload of {payload_bytes} bytes")]
    Payload {
        /// Length of the payload.
        payload_bytes: usize,
    },
    /// Arrow's formats put a dictionary into a message of its own.
    #[error("a dictionary has no place among the buffers of its array")]
    Dictionary,
}

impl Placement {
    /// The positions of the parts of an array of the given type. Does not read the payload.
    ///
    /// # Errors
    /// If the head is damaged or describes more than the payload holds, and for types with
    /// dictionaries.
    pub fn new(
        layout: &ArrayLayout,
        data_type: &DataType,
        payload_bytes: usize,
    ) -> Result<Self, PlacementError> {
        let numbers = Reader::new(&layout.numbers);
        let mut walk = Walk {
            numbers,
            payload_bytes,
            places: Places::default(),
            placement: Self::default(),
        };
        walk.array(data_type, layout.length)?;
        walk.numbers.finish("numbers of the array")?;
        if walk.places.end != payload_bytes {
            return Err(PlacementError::Payload { payload_bytes });
        }
        Ok(walk.placement)
    }
}

struct Walk<'a> {
    numbers: Reader<'a>,
    payload_bytes: usize,
    places: Places,
    placement: Placement,
}

/// Walks types in the same order as [`super::read`].
impl Walk<'_> {
    fn array(&mut self, data_type: &DataType, length: usize) -> Result<(), PlacementError> {
        if !length_fits(length, self.payload_bytes) {
            return Err(PlacementError::Payload {
                payload_bytes: self.payload_bytes,
            });
        }
        let node = self.placement.nodes.len();
        let is_null = *data_type == DataType::Null;
        self.placement.nodes.push(Node {
            length,
            validity: None,
            is_null,
        });
        let layout = arrow_data::layout(data_type);
        if layout.can_contain_null_mask {
            if self.number("mark of nulls")? != 0 {
                let place = self.place(length.div_ceil(BITS), 1)?;
                self.placement.nodes[node].validity = Some(place);
            } else {
                self.placement.buffers.push(0..0);
            }
        }
        match data_type {
            DataType::Boolean => {
                self.place(length.div_ceil(BITS), 1)?;
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                self.words(data_type, length.saturating_add(1))?;
                let bytes = self.number("bytes of text or binary")?;
                self.place(bytes, 1)?;
            }
            DataType::Utf8View | DataType::BinaryView => {
                self.words(data_type, length)?;
                let count = self.numbers.count("data buffers of views", usize::MAX)?;
                self.placement.view_buffers.push(count);
                let sizes: Vec<usize> = (0..count)
                    .map(|_| self.number("bytes of a data buffer"))
                    .collect::<Result<_, PlacementError>>()?;
                for bytes in sizes {
                    self.place(bytes, 1)?;
                }
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                self.words(data_type, length.saturating_add(1))?;
                let items = self.number("items of lists")?;
                self.array(item.data_type(), items)?;
            }
            DataType::ListView(item) | DataType::LargeListView(item) => {
                self.words(data_type, length)?;
                let items = self.number("items of lists")?;
                self.array(item.data_type(), items)?;
            }
            DataType::FixedSizeList(item, size) => {
                let items = length.saturating_mul(size.unsigned_abs() as usize);
                self.array(item.data_type(), items)?;
            }
            DataType::Struct(fields) => {
                for field in fields {
                    self.array(field.data_type(), length)?;
                }
            }
            DataType::Union(fields, mode) => {
                self.words(data_type, length)?;
                for (_, field) in fields.iter() {
                    let child = match mode {
                        UnionMode::Sparse => length,
                        UnionMode::Dense => self.number("length of a child of a dense union")?,
                    };
                    self.array(field.data_type(), child)?;
                }
            }
            DataType::Dictionary(..) => return Err(PlacementError::Dictionary),
            DataType::RunEndEncoded(run_ends, values) => {
                let runs = self.number("runs")?;
                // The array of run ends is never null, and the head has no mark of nulls for it.
                self.placement.nodes.push(Node {
                    length: runs,
                    validity: None,
                    is_null: false,
                });
                self.placement.buffers.push(0..0);
                self.words(run_ends.data_type(), runs)?;
                self.array(values.data_type(), runs)?;
            }
            _ => self.words(data_type, length)?,
        }
        Ok(())
    }

    fn number(&mut self, what: &'static str) -> Result<usize, PlacementError> {
        Ok(self.numbers.size(what)?)
    }

    /// The fixed-width buffers of a type, with `count` elements each.
    fn words(&mut self, data_type: &DataType, count: usize) -> Result<(), PlacementError> {
        for spec in arrow_data::layout(data_type).buffers {
            if let BufferSpec::FixedWidth {
                byte_width,
                alignment,
            } = spec
            {
                self.place(count.saturating_mul(byte_width), alignment)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, bytes: usize, alignment: usize) -> Result<Range<usize>, PlacementError> {
        let place = self.places.next(bytes, alignment);
        // The position of an empty buffer may be anywhere, even beyond the end.
        let place = place.map(|place| if place.is_empty() { 0..0 } else { place });
        let place = place.filter(|place| place.end <= self.payload_bytes);
        let place = place.ok_or(PlacementError::Payload {
            payload_bytes: self.payload_bytes,
        })?;
        self.placement.buffers.push(place.clone());
        Ok(place)
    }
}
