//! The tensors that a field of a type may be.

use nervure_message::DType;
use serde::{Deserialize, Serialize};

/// Tensors that a field may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorRule {
    /// Types of the elements; empty for the type of the field's numbers.
    #[serde(default)]
    pub dtypes: Vec<Elements>,
    /// Its shapes.
    pub shapes: Vec<Vec<Axis>>,
}

/// A type of elements, by NumPy's name, or `struct` for any structured type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Elements {
    /// This type.
    Plain(DType),
    /// Any structured type.
    Struct,
}

/// The length of a tensor along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Axis {
    /// Always this.
    Exactly(usize),
    /// Any number, of these things.
    Any(String),
}

impl TensorRule {
    /// Whether a tensor may have this shape.
    pub fn has_shape(&self, shape: &[usize]) -> bool {
        let fits = |axes: &Vec<Axis>| {
            let fits = |(axis, length): (&Axis, &usize)| axis.fits(*length);
            axes.len() == shape.len() && axes.iter().zip(shape).all(fits)
        };
        self.shapes.iter().any(fits)
    }

    /// Whether a tensor may have this number of dimensions.
    pub fn has_dimensions(&self, dimensions: usize) -> bool {
        self.shapes.iter().any(|axes| axes.len() == dimensions)
    }
}

impl Axis {
    fn fits(&self, length: usize) -> bool {
        match self {
            Self::Exactly(known) => *known == length,
            Self::Any(_) => true,
        }
    }
}

impl Elements {
    /// Whether these are elements of a type.
    pub fn are(&self, dtype: &DType) -> bool {
        match self {
            Self::Plain(known) => known == dtype,
            // Names of structured types are NumPy's lists of fields.
            Self::Struct => matches!(dtype, DType::Custom { name, .. } if name.starts_with('[')),
        }
    }
}

impl TryFrom<String> for Elements {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if name == "struct" {
            return Ok(Self::Struct);
        }
        let dtype = DType::from_numpy_name(&name);
        dtype.map(Self::Plain).ok_or_else(|| {
            format!(
                "`{name}` is no type of elements: write NumPy's name, such as `f4`, or `struct`"
            )
        })
    }
}

impl From<Elements> for String {
    fn from(elements: Elements) -> Self {
        elements.to_string()
    }
}

impl std::fmt::Display for Elements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(dtype) => dtype.fmt(f),
            Self::Struct => f.write_str("struct"),
        }
    }
}

impl std::fmt::Display for TensorRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |axis: &Axis| match axis {
            Axis::Exactly(length) => length.to_string(),
            Axis::Any(name) => name.clone(),
        };
        let shapes = self.shapes.iter().map(|axes| {
            let axes: Vec<String> = axes.iter().map(shown).collect();
            axes.join(" x ")
        });
        let dtypes: Vec<String> = self.dtypes.iter().map(ToString::to_string).collect();
        if !dtypes.is_empty() {
            write!(f, "{}: ", dtypes.join(", "))?;
        }
        f.write_str(&shapes.collect::<Vec<_>>().join(" or "))
    }
}
