//! Point clouds: the fields of a point, as Foxglove describes them.

use nervure_message::{DType, TensorLayout, Value};

use crate::protobuf as proto;
use crate::sample::IncomingSample;

/// Most values of a point.
const MAX_FIELDS: usize = 32;
/// Names of the values of a point that has no names.
const NAMES: [&str; 4] = ["x", "y", "z", "intensity"];

/// A value of each point.
#[derive(Debug, PartialEq)]
pub(super) struct PointField {
    name: String,
    offset: u32,
    /// `foxglove.PackedElementField.NumericType`
    numeric_type: u64,
}

/// The fields of the points in a tensor; `None` if its elements cannot be points. `names` are the names
/// of columns, if they are known.
pub(super) fn fields(tensor: &TensorLayout, names: Option<&[String]>) -> Option<Vec<PointField>> {
    stride(tensor)?;
    if let DType::Custom { name, .. } = tensor.dtype() {
        return structure(name);
    }
    let columns = *tensor.shape().last()?;
    let numeric_type = numeric_type(tensor.dtype())?;
    let names = names.filter(|names| names.len() == columns);
    let field = |column: usize| PointField {
        name: match (names, NAMES.get(column)) {
            (Some(names), _) => names[column].clone(),
            (None, Some(name)) => (*name).to_owned(),
            (None, None) => format!("column{column}"),
        },
        offset: (column * tensor.dtype().item_bytes()) as u32,
        numeric_type,
    };
    Some((0..columns).map(field).collect())
}

/// Appends the fields of the message between frame and payload.
pub(super) fn put(out: &mut Vec<u8>, tensor: &TensorLayout, sample: &IncomingSample<'_>) {
    let mut orientation = Vec::new();
    proto::put_double(&mut orientation, 4, 1.0);
    let mut pose = Vec::new();
    proto::put_bytes(&mut pose, 1, &[]);
    proto::put_bytes(&mut pose, 2, &orientation);
    proto::put_bytes(out, 3, &pose);
    proto::put_fixed32(out, 4, stride(tensor).unwrap_or_default());
    // Names of columns, as clouds of ROS have them.
    let names = match sample.metadata_value("fields") {
        Some(Value::Texts(names)) => Some(names),
        _ => None,
    };
    for field in fields(tensor, names.as_deref()).unwrap_or_default() {
        let mut described = Vec::new();
        proto::put_bytes(&mut described, 1, field.name.as_bytes());
        proto::put_fixed32(&mut described, 2, field.offset);
        proto::put_varint(&mut described, 3, field.numeric_type);
        proto::put_bytes(out, 5, &described);
    }
}

/// Bytes per point; `None` if the tensor cannot be points.
fn stride(tensor: &TensorLayout) -> Option<u32> {
    let values = match (tensor.dtype(), tensor.shape()) {
        _ if !tensor.is_contiguous() => return None,
        (DType::Custom { .. }, [_] | [_, _]) => 1,
        (_, &[_, values] | &[_, _, values]) => values,
        _ => return None,
    };
    let fits = matches!(tensor.dtype(), DType::Custom { .. }) || (2..=MAX_FIELDS).contains(&values);
    fits.then(|| u32::try_from(values * tensor.dtype().item_bytes()).ok())?
}

/// The code of a type; `None` for one that Foxglove does not have.
fn numeric_type(dtype: &DType) -> Option<u64> {
    Some(match dtype {
        DType::U8 => 1,
        DType::I8 => 2,
        DType::U16 => 3,
        DType::I16 => 4,
        DType::U32 => 5,
        DType::I32 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        _ => return None,
    })
}

/// The fields of a structured type of NumPy, such as `[('x', '<f4'), ('', '|V4'), ('ring', '<u2')]`.
/// Gaps have no name. Arrays in a point, big-endian numbers, and types that Foxglove does not have, are
/// left out.
fn structure(descr: &str) -> Option<Vec<PointField>> {
    let mut fields = Vec::new();
    let mut offset = 0_u32;
    let mut rest = descr.strip_prefix('[')?;
    while let Some((_, after)) = rest.split_once('(') {
        let (name, after) = quoted(after)?;
        let (code, after) = quoted(after.trim_start_matches([',', ' ']))?;
        let is_swapped = code.starts_with('>');
        let code = code.trim_start_matches(['<', '>', '|', '=']);
        let bytes: u32 = code.get(1..)?.parse().ok()?;
        // The shape of an array in a point, as in `(3,)`.
        let (count, after) = match after.trim_start_matches([',', ' ']).strip_prefix('(') {
            None => (1, after),
            Some(shape) => {
                let (shape, after) = shape.split_once(')')?;
                let mut lengths = shape.split(',').map(str::trim);
                let count = lengths.try_fold(1_u32, |count, length| match length {
                    "" => Some(count),
                    length => count.checked_mul(length.parse().ok()?),
                });
                (count?, after)
            }
        };
        let dtype = DType::from_numpy_name(code);
        if let Some(numeric_type) = dtype.as_ref().and_then(numeric_type)
            && count == 1
            && !is_swapped
            && !name.is_empty()
        {
            fields.push(PointField {
                name: name.to_owned(),
                offset,
                numeric_type,
            });
        }
        offset = offset.checked_add(bytes.checked_mul(count)?)?;
        rest = after;
    }
    (2..=MAX_FIELDS).contains(&fields.len()).then_some(fields)
}

/// Splits off a text in quotes.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('\'')?.split_once('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_structure_have_their_offsets_and_codes() {
        let descr = "[('x', '<f4'), ('y', '<f4'), ('', '|V4'), ('normal', '<f4', (3,)), ('ring', '<u2'), ('t', '<f8'), ('big', '>u4')]";
        let found = structure(descr).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|field| (field.name.as_str(), field.offset, field.numeric_type))
            .collect();
        assert_eq!(
            found,
            [("x", 0, 7), ("y", 4, 7), ("ring", 24, 3), ("t", 26, 8)]
        );
        for damaged in [
            "",
            "[",
            "[('x'",
            "[('x', '<f'), ('y', '<f4')]",
            "[('x', '<f4', (9999999999,))]",
        ] {
            assert_eq!(structure(damaged), None, "{damaged}");
        }
    }
}
