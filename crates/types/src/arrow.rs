//! The Arrow schema of a type: as a dict, dataclass or struct with all fields is laid out.
//!
//! Records have integers and floating-point numbers of 64 bits, texts and lists with offsets of 64 bits,
//! and nullable fields. They have no lists of fixed size: `float64[9]` is a list like `float64[]`, and the
//! check of samples counts its items. A NumPy array in a record is a tensor instead of a list.

use arrow_schema::{DataType, Field, Fields};
use nervure_message::{PYTHON_KIND, Schema, SchemaError};

use crate::definition::{Definition, Kind};

impl Definition {
    /// The schema of samples with lists for all arrays; `None` for a type whose payload is one field,
    /// such as an image.
    ///
    /// # Errors
    /// If the type exceeds the limits of schemas.
    pub fn schema(&self) -> Result<Option<Schema>, SchemaError> {
        if self.payload().is_some() {
            return Ok(None);
        }
        let metadata = arrow_schema::Metadata::new().with(PYTHON_KIND, "dict");
        let root = Field::new("", data_type(self), true).with_metadata(metadata);
        Schema::array(root).map(Some)
    }
}

fn data_type(definition: &Definition) -> DataType {
    let fields = definition.fields.iter();
    let fields = fields.map(|field| Field::new(&field.name, type_of(&field.kind), true));
    DataType::Struct(fields.collect::<Fields>())
}

fn type_of(kind: &Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Number(number) if number.is_float() => DataType::Float64,
        Kind::Number(_) => DataType::Int64,
        Kind::Text(_) => DataType::LargeUtf8,
        Kind::Message(message) => data_type(message),
        Kind::Array(item, _) | Kind::Sequence(item, _) => {
            DataType::LargeList(Field::new("item", type_of(item), true).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use nervure_message::{Encode, SerdeSample};

    use crate::example::Example;
    use crate::{standard_names, standard_type};

    #[test]
    fn samples_of_every_type_have_its_schema() {
        for name in standard_names() {
            let definition = standard_type(&name).unwrap();
            let Some(schema) = definition.schema().unwrap() else {
                continue;
            };
            let value = Example::of(&definition, true);
            let sample = SerdeSample::new(&value).unwrap();
            assert_eq!(sample.schema(), Some(&schema), "{name}");
        }
    }
}
