//! Values that people write, as values of a type: the fields that they have left out are added.

use nervure_protocol::nearest;
use serde_json::{Map, Value, json};

use crate::definition::{Definition, Field, Kind, Literal};
use crate::misfit::Misfit;

impl Definition {
    /// The value with all fields of the type: those that are missing have their default, or are 0, false
    /// or empty, except for optional ones. Integers become floating-point numbers where the type has them.
    /// Other values of a wrong type stay, for [`crate::SampleCheck`] to find.
    ///
    /// # Errors
    /// [`Misfit`] for a field that the type does not have.
    pub fn complete(&self, type_name: &str, value: Value) -> Result<Value, Misfit> {
        match self.payload() {
            Some(_) => Ok(value),
            None => Completion { type_name }.fields(self, value, ""),
        }
    }
}

struct Completion<'a> {
    type_name: &'a str,
}

impl Completion<'_> {
    fn fields(&self, of: &Definition, value: Value, path: &str) -> Result<Value, Misfit> {
        let mut given = match value {
            Value::Object(given) => given,
            Value::Null => Map::new(),
            other => return Ok(other),
        };
        let mut complete = Map::new();
        for field in &of.fields {
            let value = match given.remove(&field.name) {
                Some(value) => self.value(&field.kind, value, &within(path, &field.name))?,
                None if field.is_optional => continue,
                None => self.default(field)?,
            };
            complete.insert(field.name.clone(), value);
        }
        match given.into_iter().next() {
            None => Ok(Value::Object(complete)),
            Some((name, _)) => {
                let names = of.fields.iter().map(|field| field.name.as_str());
                let listed: Vec<_> = names.clone().collect();
                Err(Misfit {
                    type_name: self.type_name.into(),
                    field: within(path, &name),
                    expected: format!("a field of {}", listed.join(", ")),
                    found: "another name".to_owned(),
                    hint: nearest(&name, names).map(|near| format!("did you mean `{near}`?")),
                })
            }
        }
    }

    fn value(&self, kind: &Kind, value: Value, path: &str) -> Result<Value, Misfit> {
        match (kind, value) {
            (Kind::Number(number), Value::Number(given)) if number.is_float() => {
                Ok(given.as_f64().map_or(Value::Number(given), Value::from))
            }
            (Kind::Message(message), value) => self.fields(message, value, path),
            (Kind::Array(item, _) | Kind::Sequence(item, _), Value::Array(items)) => {
                let items = items.into_iter().enumerate();
                let items =
                    items.map(|(at, value)| self.value(item, value, &format!("{path}[{at}]")));
                items.collect()
            }
            (_, value) => Ok(value),
        }
    }

    fn default(&self, field: &Field) -> Result<Value, Misfit> {
        match &field.default {
            Some(default) => self.value(&field.kind, literal(default), &field.name),
            None => self.zero(&field.kind),
        }
    }

    fn zero(&self, kind: &Kind) -> Result<Value, Misfit> {
        Ok(match kind {
            Kind::Bool => Value::Bool(false),
            Kind::Number(number) if number.is_float() => json!(0.0),
            Kind::Number(_) => json!(0),
            Kind::Text(_) => json!(""),
            Kind::Message(message) => self.fields(message, Value::Null, "")?,
            Kind::Array(item, count) => Value::Array(vec![self.zero(item)?; *count]),
            Kind::Sequence(..) => Value::Array(Vec::new()),
        })
    }
}

fn within(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

fn literal(literal: &Literal) -> Value {
    match literal {
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Integer(value) => match i64::try_from(*value) {
            Ok(value) => json!(value),
            Err(_) => json!(u64::try_from(*value).unwrap_or(u64::MAX)),
        },
        Literal::Float(value) => json!(value),
        Literal::Text(text) => json!(text),
        Literal::List(items) => items.iter().map(self::literal).collect(),
    }
}

#[cfg(test)]
mod tests {
    use nervure_message::{Encode, JsonSample};

    use super::*;
    use crate::check::SampleCheck;
    use crate::standard::{standard_names, standard_type};

    fn completed(name: &str, value: Value) -> Result<Value, Misfit> {
        let definition = standard_type(&name.parse().unwrap()).unwrap();
        definition.complete(name, value)
    }

    #[test]
    fn fields_that_are_left_out_are_added() {
        let twist = completed("std/Twist@1", json!({"linear": {"x": 1}})).unwrap();
        let angular = json!({"x": 0.0, "y": 0.0, "z": 0.0});
        let linear = json!({"x": 1.0, "y": 0.0, "z": 0.0});
        assert_eq!(twist, json!({"linear": linear, "angular": angular}));
        assert_eq!(twist["linear"]["x"].as_i64(), None, "it is a float");
        let pose = completed("std/Pose@1", Value::Null).unwrap();
        assert_eq!(pose["orientation"]["w"], json!(1.0));
    }

    #[test]
    fn a_field_that_the_type_does_not_have_is_named() {
        let error = completed("std/Twist@1", json!({"linear": {"X": 1}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "std/Twist@1, field `linear.X`: expected a field of x, y, z, found another name (did you mean `x`?)"
        );
    }

    #[test]
    fn nothing_completed_fits_every_standard_type_that_is_a_record() {
        for name in standard_names() {
            let definition = standard_type(&name).unwrap();
            if definition.payload().is_some() {
                continue;
            }
            let text = name.to_string();
            let value = definition.complete(&text, Value::Null).unwrap();
            let sample = JsonSample::new(&value).unwrap();
            SampleCheck::new(&text, definition)
                .check(&sample.layout(), sample.schema())
                .unwrap_or_else(|error| panic!("{error}: {value}"));
        }
    }
}
