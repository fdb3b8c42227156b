//! Metadata of data.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use nervure_node::{Value, binding};

/// The parameter that ties a response to its request.
pub const REQUEST_ID: &str = "request_id";
/// The parameter that ties feedback and result to the goal of an action.
pub const GOAL_ID: &str = "goal_id";
/// The parameter with the end of an action.
pub const GOAL_STATUS: &str = "goal_status";
/// The action has succeeded.
pub const GOAL_STATUS_SUCCEEDED: &str = "succeeded";
/// The server has given up the action.
pub const GOAL_STATUS_ABORTED: &str = "aborted";
/// The client has canceled the action.
pub const GOAL_STATUS_CANCELED: &str = "canceled";
/// The parameter with the context of a trace.
pub const OPEN_TELEMETRY_CONTEXT: &str = "open_telemetry_context";
/// The parameter with the session of a stream.
pub const SESSION_ID: &str = "session_id";
/// The parameter with the segment of a stream.
pub const SEGMENT_ID: &str = "segment_id";
/// The parameter with the number of a chunk in its segment.
pub const SEQ: &str = "seq";
/// The parameter that marks the last chunk of a segment.
pub const FIN: &str = "fin";
/// The parameter that asks the receiver to discard older chunks.
pub const FLUSH: &str = "flush";

/// Named values that are sent along with data.
pub type MetadataParameters = BTreeMap<String, Parameter>;

/// A value that is sent along with data.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// Text.
    String(String),
    /// A list of integers.
    ListInt(Vec<i64>),
    /// A number.
    Float(f64),
    /// A list of numbers.
    ListFloat(Vec<f64>),
    /// A list of texts.
    ListString(Vec<String>),
    /// A point in time.
    Timestamp(DateTime<Utc>),
}

/// Metadata of received data: the time of its publication, and parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    timestamp: uhlc::Timestamp,
    /// The named values.
    pub parameters: MetadataParameters,
}

impl Metadata {
    /// Metadata without parameters.
    pub fn new(timestamp: uhlc::Timestamp) -> Self {
        Self::from_parameters(timestamp, MetadataParameters::new())
    }

    /// Metadata with parameters.
    pub fn from_parameters(timestamp: uhlc::Timestamp, parameters: MetadataParameters) -> Self {
        Self {
            timestamp,
            parameters,
        }
    }

    /// The time of publication, on the clock of the dataflow.
    pub fn timestamp(&self) -> uhlc::Timestamp {
        self.timestamp
    }

    /// The context of the trace that the data belongs to; empty if there is none.
    pub fn open_telemetry_context(&self) -> String {
        let context = get_string_param(&self.parameters, OPEN_TELEMETRY_CONTEXT);
        context.unwrap_or_default().to_owned()
    }
}

/// The text with that key; `None` if it is missing or of another type.
pub fn get_string_param<'a>(parameters: &'a MetadataParameters, key: &str) -> Option<&'a str> {
    match parameters.get(key)? {
        Parameter::String(value) => Some(value),
        _ => None,
    }
}

/// The integer with that key; `None` if it is missing or of another type.
pub fn get_integer_param(parameters: &MetadataParameters, key: &str) -> Option<i64> {
    match parameters.get(key)? {
        Parameter::Integer(value) => Some(*value),
        _ => None,
    }
}

/// The truth value with that key; `None` if it is missing or of another type.
pub fn get_bool_param(parameters: &MetadataParameters, key: &str) -> Option<bool> {
    match parameters.get(key)? {
        Parameter::Bool(value) => Some(*value),
        _ => None,
    }
}

/// The timestamp for a time of the dataflow's clock, in nanoseconds since the Unix epoch.
pub(crate) fn timestamp(nanos: i64) -> uhlc::Timestamp {
    let since_epoch = std::time::Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    let id = uhlc::ID::try_from(1_u8).expect("an identifier is not zero");
    uhlc::Timestamp::new(uhlc::NTP64::from(since_epoch), id)
}

pub(crate) fn to_nervure(parameters: MetadataParameters) -> nervure_node::Metadata {
    let mut metadata = nervure_node::Metadata::new();
    for (key, parameter) in parameters {
        let value = match parameter {
            Parameter::Bool(value) => Value::Bool(value),
            Parameter::Integer(value) => Value::Integer(value),
            Parameter::Float(value) => Value::Float(value),
            Parameter::String(value) => Value::Text(value),
            Parameter::ListInt(values) => Value::Integers(values),
            Parameter::ListFloat(values) => Value::Floats(values),
            Parameter::ListString(values) => Value::Texts(values),
            Parameter::Timestamp(time) => {
                // Outside 1677 to 2262 the nearest time of that range.
                let limit = if time.timestamp() < 0 {
                    i64::MIN
                } else {
                    i64::MAX
                };
                let nanos = time.timestamp_nanos_opt().unwrap_or(limit);
                binding::dora_time_value(nanos)
            }
        };
        metadata.insert(key, value);
    }
    metadata
}

pub(crate) fn from_nervure(metadata: &nervure_node::Metadata) -> MetadataParameters {
    let parameter = |value: &Value| match value {
        Value::Bool(value) => Parameter::Bool(*value),
        Value::Integer(value) => Parameter::Integer(*value),
        Value::Float(value) => Parameter::Float(*value),
        Value::Text(value) => Parameter::String(value.clone()),
        Value::Bytes(bytes) => match binding::dora_time(value) {
            Some(nanos) => Parameter::Timestamp(DateTime::from_timestamp_nanos(nanos)),
            None => Parameter::ListInt(bytes.iter().map(|&byte| byte.into()).collect()),
        },
        Value::Integers(values) => Parameter::ListInt(values.clone()),
        Value::Floats(values) => Parameter::ListFloat(values.clone()),
        Value::Texts(values) => Parameter::ListString(values.clone()),
    };
    let entries = metadata.iter();
    entries
        .map(|(key, value)| (key.to_owned(), parameter(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_arrive_as_they_were_sent() {
        let sent = MetadataParameters::from([
            ("bool".to_owned(), Parameter::Bool(true)),
            ("integer".to_owned(), Parameter::Integer(-7)),
            ("float".to_owned(), Parameter::Float(0.5)),
            ("text".to_owned(), Parameter::String("mono8".to_owned())),
            ("integers".to_owned(), Parameter::ListInt(vec![1, 2])),
            ("floats".to_owned(), Parameter::ListFloat(vec![1.5])),
            (
                "texts".to_owned(),
                Parameter::ListString(vec!["a".to_owned()]),
            ),
            (
                "time".to_owned(),
                Parameter::Timestamp(DateTime::from_timestamp_nanos(1_500_000_001)),
            ),
        ]);
        assert_eq!(from_nervure(&to_nervure(sent.clone())), sent);
    }

    #[test]
    fn bytes_of_other_nodes_become_integers() {
        let mut metadata = nervure_node::Metadata::new();
        metadata.insert("key", Value::Bytes(vec![0, 255]));
        let expected = Parameter::ListInt(vec![0, 255]);
        assert_eq!(from_nervure(&metadata)["key"], expected);
    }

    #[test]
    fn helpers_return_values_of_their_type_alone() {
        let parameters = MetadataParameters::from([(SEQ.to_owned(), Parameter::Integer(3))]);
        assert_eq!(get_integer_param(&parameters, SEQ), Some(3));
        assert_eq!(get_string_param(&parameters, SEQ), None);
        assert_eq!(get_bool_param(&parameters, FIN), None);
    }

    #[test]
    fn a_timestamp_is_the_dataflows_time() {
        let time = timestamp(1_500_000_000).get_time().to_system_time();
        let nanos = time
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        assert!(nanos.abs_diff(1_500_000_000) <= 1, "{nanos}");
    }
}
