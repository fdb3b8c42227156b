//! Nervure's events as dora's.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_schema::DataType;
use nervure_node::message::Layout;
use nervure_node::{Event as Nervure, Sample};

/// The kind of an event, as C has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The node has to end.
    Stop,
    /// Data arrived, or a timer is due.
    Input,
    /// The producer of an input has ended.
    InputClosed,
    /// Data could not be read.
    Error,
    /// Another event.
    Unknown,
}

/// What `dora_event` points to.
#[derive(Debug)]
pub struct Event {
    kind: Kind,
    /// Of an input.
    id: Option<Arc<str>>,
    data: Data,
    stamp: i64,
}

#[derive(Debug)]
enum Data {
    None,
    Bytes(Sample),
    /// An array of `UInt8`.
    Array(ArrayData),
}

impl Event {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            id: None,
            data: Data::None,
            stamp: 0,
        }
    }

    fn input(id: Arc<str>, data: Data, stamp: i64) -> Self {
        Self {
            kind: Kind::Input,
            id: Some(id),
            data,
            stamp,
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn input_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub fn data(&self) -> Option<&[u8]> {
        match &self.data {
            Data::None => None,
            Data::Bytes(sample) => Some(sample.bytes()),
            Data::Array(array) => {
                Some(&array.buffers()[0][array.offset()..array.offset() + array.len()])
            }
        }
    }

    /// Seconds in the upper 32 bits, and their fraction in the lower ones.
    pub fn timestamp(&self) -> u64 {
        const NANOS: u64 = 1_000_000_000;
        let nanos = u64::try_from(self.stamp).unwrap_or(0);
        let fraction = ((nanos % NANOS) << 32) / NANOS;
        ((nanos / NANOS) << 32) | fraction
    }
}

/// Converts events.
#[derive(Debug, Default)]
pub struct Converter {
    /// Inputs that were reported as closed because they were silent for too long.
    silent: HashSet<Arc<str>>,
}

impl Converter {
    /// The event for C; `None` for an event that dora does not have.
    pub fn convert(&mut self, event: Nervure) -> Option<Event> {
        Some(match event {
            Nervure::Input { id, sample } => {
                self.silent.remove(&id);
                let stamp = sample.stamp();
                match data(&id, sample) {
                    Ok(data) => Event::input(id, data, stamp),
                    Err(error) => {
                        eprintln!("ERROR the data of input {id} cannot be read: {error}");
                        Event::new(Kind::Error)
                    }
                }
            }
            Nervure::Tick { id, due, .. } => Event::input(id, Data::None, due),
            Nervure::InputClosed { id } if self.silent.contains(&id) => return None,
            Nervure::InputClosed { .. } => Event::new(Kind::InputClosed),
            Nervure::Stale { id, .. } if self.silent.insert(id.clone()) => {
                Event::new(Kind::InputClosed)
            }
            Nervure::Stop { .. } => Event::new(Kind::Stop),
            // dora reports only the restart.
            Nervure::NodeFailed { restarts: true, .. } => return None,
            Nervure::Param { .. } | Nervure::NodeFailed { .. } | Nervure::NodeRestarted { .. } => {
                Event::new(Kind::Unknown)
            }
            _ => return None,
        })
    }
}

fn data(id: &str, sample: Sample) -> Result<Data, nervure_node::SampleError> {
    if matches!(sample.layout()?, Layout::Bytes | Layout::Text) {
        return Ok(Data::Bytes(sample));
    }
    let array = sample.array()?;
    Ok(match array.data_type() {
        DataType::UInt8 => Data::Array(array),
        DataType::Null => Data::None,
        other => {
            eprintln!(
                "ERROR input {id} has data of type {other}: C reads bytes, text and arrays of UInt8"
            );
            Data::None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_timestamp_has_seconds_and_their_fraction() {
        let event = Event::input("tick".into(), Data::None, 2_500_000_000);
        assert_eq!(event.timestamp(), (2 << 32) | (1 << 31));
        assert_eq!(Event::new(Kind::Stop).timestamp(), 0);
    }

    #[test]
    fn bytes_of_a_slice_are_the_slices() {
        let values = vec![1_u8, 2, 3, 4];
        let array = ArrayData::builder(DataType::UInt8).len(4);
        let array = array.add_buffer(values.into()).build().unwrap();
        let event = Event::input("in".into(), Data::Array(array.slice(1, 2)), 0);
        assert_eq!(event.data(), Some(&[2, 3][..]));
    }

    #[test]
    fn a_silent_input_is_closed_once() {
        let id: Arc<str> = "scan".into();
        let stale = |count| Nervure::Stale {
            id: id.clone(),
            age: Duration::from_secs(count),
            count,
        };
        let closed = Nervure::InputClosed { id: id.clone() };
        let mut converter = Converter::default();
        let kinds = [stale(1), stale(2), closed].map(|event| {
            let event = converter.convert(event);
            event.map(|event| event.kind())
        });
        assert_eq!(kinds, [Some(Kind::InputClosed), None, None]);
    }
}
