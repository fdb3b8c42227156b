//! Metadata of data, with accessors for C++.

use chrono::DateTime;
use dora_node_api::{
    GOAL_ID, GOAL_STATUS, Metadata as Received, MetadataParameters, Parameter, REQUEST_ID,
};
use eyre::{ContextCompat, Result, bail};
use serde_json::{Value, json};

/// The time of publication of an input, and its parameters; or parameters to send.
#[derive(Debug, Default)]
pub struct Metadata {
    timestamp: u64,
    parameters: MetadataParameters,
}

impl From<Received> for Metadata {
    fn from(received: Received) -> Self {
        Self {
            timestamp: received.timestamp().get_time().as_u64(),
            parameters: received.parameters,
        }
    }
}

/// The accessors of each type.
macro_rules! accessors {
    ($($variant:ident $value:ty: $get:ident $set:ident,)*) => {
        impl Metadata {
            $(
                pub fn $get(&self, key: &str) -> Result<$value> {
                    match self.parameter(key)? {
                        Parameter::$variant(value) => Ok(value.clone()),
                        other => bail!(
                            "metadata `{key}` is of type {}, expected {}",
                            type_name(other),
                            stringify!($variant)
                        ),
                    }
                }

                pub fn $set(&mut self, key: &str, value: $value) -> Result<()> {
                    self.parameters.insert(key.to_owned(), Parameter::$variant(value));
                    Ok(())
                }
            )*
        }
    };
}
accessors!(
    Bool bool: get_bool set_bool,
    Integer i64: get_int set_int,
    Float f64: get_float set_float,
    String String: get_str set_string,
    ListInt Vec<i64>: get_list_int set_list_int,
    ListFloat Vec<f64>: get_list_float set_list_float,
    ListString Vec<String>: get_list_string set_list_string,
);

/// The accessors of parameters with a meaning.
macro_rules! named {
    ($($key:ident: $get:ident $set:ident,)*) => {
        impl Metadata {
            $(
                pub fn $get(&self) -> Result<String> {
                    self.get_str($key)
                }

                pub fn $set(&mut self, value: String) -> Result<()> {
                    self.set_string($key, value)
                }
            )*
        }
    };
}
named!(
    REQUEST_ID: request_id set_request_id,
    GOAL_ID: goal_id set_goal_id,
    GOAL_STATUS: goal_status set_goal_status,
);

impl Metadata {
    pub fn into_parameters(self) -> MetadataParameters {
        self.parameters
    }

    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    pub fn get_timestamp(&self, key: &str) -> Result<i64> {
        match self.parameter(key)? {
            Parameter::Timestamp(time) => time
                .timestamp_nanos_opt()
                .with_context(|| format!("metadata `{key}` is a time outside 1677 to 2262")),
            other => bail!(
                "metadata `{key}` is of type {}, expected Timestamp",
                type_name(other)
            ),
        }
    }

    pub fn set_timestamp(&mut self, key: &str, nanos: i64) -> Result<()> {
        let time = Parameter::Timestamp(DateTime::from_timestamp_nanos(nanos));
        self.parameters.insert(key.to_owned(), time);
        Ok(())
    }

    pub fn get_json(&self, key: &str) -> Result<String> {
        Ok(value(self.parameter(key)?).to_string())
    }

    /// The time, and each parameter with its type.
    pub fn to_json(&self) -> String {
        let parameters = self.parameters.iter();
        let parameters: serde_json::Map<_, _> = parameters
            .map(|(key, parameter)| {
                let typed = json!({type_name(parameter): value(parameter)});
                (key.clone(), typed)
            })
            .collect();
        json!({"timestamp": self.timestamp, "parameters": parameters}).to_string()
    }

    pub fn list_keys(&self) -> Vec<String> {
        self.parameters.keys().cloned().collect()
    }

    pub fn parameter(&self, key: &str) -> Result<&Parameter> {
        let parameter = self.parameters.get(key);
        parameter.with_context(|| format!("there is no metadata `{key}`"))
    }
}

fn value(parameter: &Parameter) -> Value {
    match parameter {
        Parameter::Bool(value) => json!(value),
        Parameter::Integer(value) => json!(value),
        Parameter::Float(value) => json!(value),
        Parameter::String(value) => json!(value),
        Parameter::ListInt(values) => json!(values),
        Parameter::ListFloat(values) => json!(values),
        Parameter::ListString(values) => json!(values),
        Parameter::Timestamp(time) => {
            json!(time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
        }
    }
}

fn type_name(parameter: &Parameter) -> &'static str {
    match parameter {
        Parameter::Bool(_) => "Bool",
        Parameter::Integer(_) => "Integer",
        Parameter::Float(_) => "Float",
        Parameter::String(_) => "String",
        Parameter::ListInt(_) => "ListInt",
        Parameter::ListFloat(_) => "ListFloat",
        Parameter::ListString(_) => "ListString",
        Parameter::Timestamp(_) => "Timestamp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_by_their_type_alone() {
        let mut metadata = Metadata::default();
        metadata.set_int("width", 4).unwrap();
        metadata.set_request_id("7".to_owned()).unwrap();
        metadata.set_timestamp("at", -1_500_000_001).unwrap();
        assert_eq!(metadata.get_int("width").unwrap(), 4);
        assert_eq!(metadata.request_id().unwrap(), "7");
        assert_eq!(metadata.get_timestamp("at").unwrap(), -1_500_000_001);
        let error = metadata.get_float("width").unwrap_err().to_string();
        assert_eq!(error, "metadata `width` is of type Integer, expected Float");
        let error = metadata.goal_id().unwrap_err().to_string();
        assert_eq!(error, "there is no metadata `goal_id`");
        assert_eq!(
            metadata.to_json(),
            r#"{"parameters":{"at":{"Timestamp":"1969-12-31T23:59:58.499999999Z"},"request_id":{"String":"7"},"width":{"Integer":4}},"timestamp":0}"#
        );
    }
}
