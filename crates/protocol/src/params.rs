//! Parameters of nodes: their declarations and values.
//!
//! The dataflow file declares them. The keeper holds their values and checks each change before it
//! reaches a node.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Maximum size of a value as JSON, in bytes.
pub const MAX_PARAM_BYTES: usize = 4 * 1024;

/// Maximum size of all parameters of a node together as JSON, declarations included, in bytes.
pub const MAX_NODE_PARAMS_BYTES: usize = 64 * 1024;

/// The declaration of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamSpec {
    /// Its name, unique within its node.
    pub name: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub kind: ParamKind,
    /// Its value at the start of the dataflow.
    pub value: Value,
    /// The smallest number allowed, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// The largest number allowed, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// The allowed values; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<Value>,
    /// True if it cannot be changed while the dataflow runs.
    #[serde(default)]
    pub read_only: bool,
    /// A description, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A parameter's name and its current value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// The type of a parameter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParamKind {
    /// True or false.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// A floating-point number of 64 bits; an integer is converted.
    Float,
    /// Text.
    Str,
    /// A list of truth values, of integers, of floating-point numbers, or of texts.
    List,
}

/// Why a value is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The value has another type.
    #[error("`{name}` is {expected}, got {got}")]
    Kind {
        /// The parameter.
        name: String,
        /// Its type.
        expected: &'static str,
        /// The value.
        got: String,
    },
    /// The value is below the minimum or above the maximum.
    #[error("`{name}` is {bounds}, got {got}")]
    Bounds {
        /// The parameter.
        name: String,
        /// Its bounds.
        bounds: String,
        /// The value, or the element of it.
        got: Number,
    },
    /// The value is not one of the allowed ones.
    #[error("`{name}` is one of {choices}, got {got}")]
    Choice {
        /// The parameter.
        name: String,
        /// The allowed values.
        choices: String,
        /// The value.
        got: String,
    },
    /// The value is too large.
    #[error("a value of `{name}` takes at most {MAX_PARAM_BYTES} bytes as JSON, got {bytes}")]
    Size {
        /// The parameter.
        name: String,
        /// The size of the value as JSON.
        bytes: usize,
    },
    /// The parameter cannot be changed.
    #[error("`{name}` is read-only: it keeps the value of the dataflow file")]
    ReadOnly {
        /// The parameter.
        name: String,
    },
}

impl ParamKind {
    /// The type of a value; `None` if no parameter can have it.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(_) => Some(Self::Bool),
            Value::Number(number) if number.is_f64() => Some(Self::Float),
            Value::Number(_) => Some(Self::Int),
            Value::String(_) => Some(Self::Str),
            Value::Array(_) => Some(Self::List),
            Value::Null | Value::Object(_) => None,
        }
    }

    /// The name of the type in a dataflow file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Str => "str",
            Self::List => "list",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Bool => "true or false (bool)",
            Self::Int => "a whole number (int)",
            Self::Float => "a number (float)",
            Self::Str => "text (str)",
            Self::List => "a list of values of one type",
        }
    }

    /// Converts a value to this type; returns it as the error if it has another.
    fn cast(self, value: Value) -> Result<Value, Value> {
        match (self, &value) {
            (Self::Bool, Value::Bool(_)) | (Self::Str, Value::String(_)) => Ok(value),
            (Self::Int, Value::Number(number)) if number.is_i64() => Ok(value),
            (Self::Float, Value::Number(number)) => number
                .as_f64()
                .and_then(Number::from_f64)
                .map(Value::Number)
                .ok_or(value),
            (Self::List, Value::Array(items)) => list(items).ok_or(value),
            _ => Err(value),
        }
    }
}

impl ParamSpec {
    /// Checks a value, also of a read-only parameter, and converts it to the declared type.
    ///
    /// # Errors
    /// [`ParamError`]
    pub fn accept(&self, value: Value) -> Result<Value, ParamError> {
        let name = || self.name.clone();
        let bytes = value.to_string().len();
        if bytes > MAX_PARAM_BYTES {
            return Err(ParamError::Size {
                name: name(),
                bytes,
            });
        }
        let value = self.kind.cast(value).map_err(|value| ParamError::Kind {
            name: name(),
            expected: self.kind.describe(),
            got: value.to_string(),
        })?;
        let outside = |number: &&Number| {
            self.min.as_ref().is_some_and(|min| is_less(number, min))
                || self.max.as_ref().is_some_and(|max| is_less(max, number))
        };
        if let Some(number) = numbers(&value).find(outside) {
            return Err(ParamError::Bounds {
                name: name(),
                bounds: self.bounds(),
                got: number.clone(),
            });
        }
        if !self.one_of.is_empty() && !self.one_of.contains(&value) {
            let choices: Vec<_> = self.one_of.iter().map(Value::to_string).collect();
            let choices = choices.join(", ");
            return Err(ParamError::Choice {
                name: name(),
                choices,
                got: value.to_string(),
            });
        }
        Ok(value)
    }

    /// Checks and converts a value for a change while the dataflow runs.
    ///
    /// # Errors
    /// [`ParamError`].
    pub fn change(&self, value: Value) -> Result<Value, ParamError> {
        match self.read_only {
            true => Err(ParamError::ReadOnly {
                name: self.name.clone(),
            }),
            false => self.accept(value),
        }
    }

    /// `from 1 to 60`, `at least 1`, `at most 60`; empty without bounds.
    pub fn bounds(&self) -> String {
        match (&self.min, &self.max) {
            (Some(min), Some(max)) => format!("from {min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => String::new(),
        }
    }
}

/// A list with elements of one type: integers are converted if there are floats.
fn list(items: &[Value]) -> Option<Value> {
    let kinds: Option<Vec<_>> = items.iter().map(ParamKind::of).collect();
    let mut kind = *kinds.as_ref()?.first().unwrap_or(&ParamKind::Int);
    if kind == ParamKind::Int && kinds?.contains(&ParamKind::Float) {
        kind = ParamKind::Float;
    }
    if kind == ParamKind::List {
        return None;
    }
    let items: Result<_, _> = items.iter().cloned().map(|item| kind.cast(item)).collect();
    items.ok().map(Value::Array)
}

fn numbers(value: &Value) -> impl Iterator<Item = &Number> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    items.iter().filter_map(Value::as_number)
}

/// Returns true if `a < b`. Two integers are compared exactly: a float cannot represent every
/// integer.
pub fn is_less(a: &Number, b: &Number) -> bool {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a < b,
        _ => a.as_f64() < b.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: Value) -> ParamSpec {
        let kind = ParamKind::of(&value).unwrap();
        let name = "fps".to_owned();
        ParamSpec {
            name,
            kind,
            value,
            min: None,
            max: None,
            one_of: Vec::new(),
            read_only: false,
            description: None,
        }
    }

    #[test]
    fn values_have_the_declared_type() {
        assert_eq!(spec(json!(30)).accept(json!(60)), Ok(json!(60)));
        assert_eq!(spec(json!(0.5)).accept(json!(1)), Ok(json!(1.0)));
        assert_eq!(
            spec(json!([0.5])).accept(json!([1, 2.5])),
            Ok(json!([1.0, 2.5]))
        );
        assert_eq!(spec(json!(["a"])).accept(json!([])), Ok(json!([])));
        let refused =
            |value: Value, other: Value| spec(value).accept(other).unwrap_err().to_string();
        assert_eq!(
            refused(json!(30), json!(2.5)),
            "`fps` is a whole number (int), got 2.5"
        );
        assert_eq!(
            refused(json!(true), json!("yes")),
            "`fps` is true or false (bool), got \"yes\""
        );
        assert_eq!(
            refused(json!([1]), json!([1, "a"])),
            "`fps` is a list of values of one type, got [1,\"a\"]"
        );
        assert_eq!(
            refused(json!([1]), json!([[1]])),
            "`fps` is a list of values of one type, got [[1]]"
        );
        assert!(refused(json!("a"), json!("x".repeat(5000))).contains("at most 4096 bytes"));
        assert_eq!(ParamKind::of(&json!(null)), None);
    }

    #[test]
    fn bounds_choices_and_read_only_are_checked() {
        let bounded = |min: Option<i64>, max: Option<i64>| ParamSpec {
            min: min.map(Number::from),
            max: max.map(Number::from),
            ..spec(json!(30))
        };
        let refused = |spec: ParamSpec, value: Value| spec.change(value).unwrap_err().to_string();
        assert_eq!(bounded(Some(1), Some(60)).change(json!(60)), Ok(json!(60)));
        assert_eq!(
            refused(bounded(Some(1), Some(60)), json!(61)),
            "`fps` is from 1 to 60, got 61"
        );
        assert_eq!(
            refused(bounded(Some(1), None), json!(0)),
            "`fps` is at least 1, got 0"
        );
        let list = ParamSpec {
            max: Number::from_f64(1.0),
            ..spec(json!([0.5]))
        };
        assert_eq!(
            refused(list, json!([0.5, 1.5])),
            "`fps` is at most 1.0, got 1.5"
        );
        let choice = ParamSpec {
            one_of: vec![json!("fast"), json!("careful")],
            ..spec(json!("fast"))
        };
        assert_eq!(choice.change(json!("careful")), Ok(json!("careful")));
        assert_eq!(
            refused(choice, json!("fats")),
            "`fps` is one of \"fast\", \"careful\", got \"fats\""
        );
        let fixed = ParamSpec {
            read_only: true,
            ..spec(json!(30))
        };
        assert_eq!(fixed.accept(json!(31)), Ok(json!(31)));
        assert!(refused(fixed, json!(31)).contains("is read-only"));
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        let number = |value: i64| Number::from(value);
        assert!(is_less(&number(i64::MAX - 1), &number(i64::MAX)));
        assert!(!is_less(&number(i64::MAX), &number(i64::MAX - 1)));
    }
}
