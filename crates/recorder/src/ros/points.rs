//! `sensor_msgs/PointCloud2`.

use std::borrow::Cow;

use nervure_message::{DType, Layout, Metadata, TensorLayout};

use super::content::{Content, MessageError, RosHeader, short_text};
use nervure_types::Kind;
use nervure_types::cdr::Reader;

/// Fields of `sensor_msgs/PointCloud2`, in the order in which they are read here.
pub(crate) const CLOUD_FIELDS: [(&str, &str); 9] = [
    ("header", "std_msgs/Header"),
    ("height", "uint32"),
    ("width", "uint32"),
    ("fields", "sensor_msgs/PointField[]"),
    ("is_bigendian", "bool"),
    ("point_step", "uint32"),
    ("row_step", "uint32"),
    ("data", "uint8[]"),
    ("is_dense", "bool"),
];

/// Fields of `sensor_msgs/PointField`.
const POINT_FIELD: [(&str, &str); 4] = [
    ("name", "string"),
    ("offset", "uint32"),
    ("datatype", "uint8"),
    ("count", "uint32"),
];

/// Whether it is a sequence of `sensor_msgs/PointField` with the expected fields.
pub(crate) fn is_list_of_fields(kind: &Kind) -> bool {
    let Kind::Sequence(item, _) = kind else {
        return false;
    };
    matches!(&**item, Kind::Message(field) if field.has_fields(&POINT_FIELD))
}

/// Limit on the fields of a point.
const MAX_FIELDS: usize = 64;

/// One or several values of each point.
pub(crate) struct PointField {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) dtype: DType,
    pub(crate) count: usize,
}

/// The fields of a point cloud.
pub(crate) struct Cloud<'a> {
    pub(crate) header: RosHeader,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) fields: Vec<PointField>,
    pub(crate) is_big_endian: bool,
    pub(crate) point_step: usize,
    pub(crate) row_step: usize,
    pub(crate) data: &'a [u8],
}

impl<'a> Cloud<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, MessageError> {
        let header = RosHeader::read(reader)?;
        let (height, width) = (reader.u32()? as usize, reader.u32()? as usize);
        let count = reader.count()?;
        check_count(count)?;
        let fields = (0..count)
            .map(|_| read_field(reader))
            .collect::<Result<_, _>>()?;
        let cloud = Self {
            header,
            height,
            width,
            fields,
            is_big_endian: reader.u8()? != 0,
            point_step: reader.u32()? as usize,
            row_step: reader.u32()? as usize,
            data: reader.byte_sequence()?,
        };
        let _is_dense = reader.u8()?;
        Ok(cloud)
    }

    /// A tensor. If all values of a point have one type and are contiguous: points x values. Otherwise:
    /// points, whose element is a NumPy structure. An organised cloud has one more dimension, for its
    /// rows.
    pub(crate) fn content(self) -> Result<Content<'a>, MessageError> {
        check_count(self.fields.len())?;
        let Self {
            header,
            height,
            width,
            mut fields,
            is_big_endian,
            point_step,
            row_step,
            data,
        } = self;
        fields.sort_by_key(|field| field.offset);
        let names: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
        let (dtype, values) = point_type(&fields, point_step)?;
        if is_big_endian && fields.iter().any(|field| field.dtype.item_bytes() > 1) {
            return Err(MessageError::Cloud(
                "its values are big-endian, which is not read".to_owned(),
            ));
        }
        if height > 1 && row_step < width.saturating_mul(point_step) {
            return Err(MessageError::Cloud(format!(
                "{width} points of {point_step} bytes do not fit its row_step of {row_step} bytes"
            )));
        }
        let (mut shape, mut strides) = (vec![height, width], vec![row_step, point_step]);
        if height == 1 {
            (shape, strides) = (vec![width], vec![point_step]);
        }
        if let Some(values) = values {
            shape.push(values);
            strides.push(dtype.item_bytes());
        }
        let layout = TensorLayout::strided(dtype, &shape, &strides)?;
        let Some(data) = data.get(..layout.payload_bytes()) else {
            let wanted = layout.payload_bytes();
            return Err(MessageError::Cloud(format!(
                "it has {} bytes of {wanted} that its size asks for",
                data.len()
            )));
        };
        let mut metadata = Metadata::new();
        metadata.insert("fields", names);
        Ok(Content {
            header,
            layout: Layout::Tensor(layout),
            metadata,
            payload: Cow::Borrowed(data),
        })
    }
}

fn check_count(fields: usize) -> Result<(), MessageError> {
    if fields > MAX_FIELDS {
        return Err(MessageError::Cloud(format!(
            "its points have {fields} fields, at most {MAX_FIELDS} are read"
        )));
    }
    Ok(())
}

fn read_field(reader: &mut Reader<'_>) -> Result<PointField, MessageError> {
    let name = short_text(reader.text()?, "name of a field")?;
    let offset = reader.u32()? as usize;
    let code = reader.u8()?;
    let count = reader.u32()? as usize;
    let dtype = match code {
        1 => DType::I8,
        2 => DType::U8,
        3 => DType::I16,
        4 => DType::U16,
        5 => DType::I32,
        6 => DType::U32,
        7 => DType::F32,
        8 => DType::F64,
        code => {
            return Err(MessageError::Cloud(format!(
                "its field {name:?} is of type {code}, which is unknown"
            )));
        }
    };
    Ok(PointField {
        name,
        offset,
        dtype,
        count: count.max(1),
    })
}

/// Type of the elements and number of elements per point; `None` as number if the whole point is
/// the element.
fn point_type(
    fields: &[PointField],
    point_step: usize,
) -> Result<(DType, Option<usize>), MessageError> {
    let mut end = 0_usize;
    let mut is_plain = true;
    let (mut parts, mut names) = (Vec::new(), Vec::new());
    for field in fields {
        if field.offset < end {
            return Err(MessageError::Cloud(format!(
                "its field {:?} lies within the one before",
                field.name
            )));
        }
        let name = quoted(&field.name);
        if names.contains(&name) {
            return Err(MessageError::Cloud(format!(
                "two of its fields are called {name}"
            )));
        }
        is_plain &= field.offset == end && field.count == 1 && field.dtype == fields[0].dtype;
        if field.offset > end {
            parts.push(format!("('', '|V{}')", field.offset - end));
        }
        let dtype = numpy_type(&field.dtype);
        parts.push(match field.count {
            1 => format!("({name}, '{dtype}')"),
            count => format!("({name}, '{dtype}', ({count},))"),
        });
        names.push(name);
        let bytes = field.count.saturating_mul(field.dtype.item_bytes());
        end = field.offset.saturating_add(bytes);
    }
    if fields.is_empty() {
        return Err(MessageError::Cloud("its points have no fields".to_owned()));
    }
    if end > point_step {
        return Err(MessageError::Cloud(format!(
            "its fields reach to byte {end} of points of {point_step} bytes"
        )));
    }
    if is_plain {
        return Ok((fields[0].dtype.clone(), Some(fields.len())));
    }
    if point_step > end {
        parts.push(format!("('', '|V{}')", point_step - end));
    }
    let name = format!("[{}]", parts.join(", "));
    if name.len() > DType::MAX_NAME_BYTES {
        return Err(MessageError::Cloud(format!(
            "the names of its fields take {} bytes",
            name.len()
        )));
    }
    let item_bytes = u32::try_from(point_step).unwrap_or(u32::MAX);
    Ok((
        DType::Custom {
            name: name.into(),
            item_bytes,
        },
        None,
    ))
}

/// NumPy's name of the type with its byte order, as in `dtype.descr`.
fn numpy_type(dtype: &DType) -> String {
    let mark = if dtype.item_bytes() == 1 { '|' } else { '<' };
    format!("{mark}{}", dtype.numpy_name())
}

/// The text as a Python literal.
fn quoted(name: &str) -> String {
    let escaped: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_ -.".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    format!("'{escaped}'")
}
