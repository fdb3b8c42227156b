//! Nervure's events as dora's.

use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_schema::DataType;
use nervure_node::binding::{Heard, SilentInputs};
use nervure_node::message::Layout;
use nervure_node::{Event as Nervure, Handle, Sample};

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
    /// Id of the input; `None` for other events.
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
    silence: SilentInputs,
    /// The sample that ended the silence of its input.
    rest: Option<Event>,
}

impl Converter {
    pub fn new(handle: &Handle) -> Self {
        Self {
            silence: SilentInputs::new(handle),
            rest: None,
        }
    }

    /// The second event of a conversion, if any: call it before the next conversion.
    pub fn take_rest(&mut self) -> Option<Event> {
        self.rest.take()
    }

    /// The event for C; `None` for an event that dora does not have.
    pub fn convert(&mut self, event: Nervure) -> Option<Event> {
        match self.silence.note(&event) {
            Heard::Nothing => None,
            Heard::Recovery => {
                self.rest = converted(event);
                Some(Event::new(Kind::Unknown))
            }
            Heard::Event | Heard::Closed => converted(event),
        }
    }
}

fn converted(event: Nervure) -> Option<Event> {
    Some(match event {
        Nervure::Input { id, sample } => {
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
        Nervure::InputClosed { .. } | Nervure::Stale { .. } => Event::new(Kind::InputClosed),
        Nervure::Stop { .. } => Event::new(Kind::Stop),
        // dora reports only the restart.
        Nervure::NodeFailed { restarts: true, .. } => return None,
        Nervure::Param { .. } | Nervure::NodeFailed { .. } | Nervure::NodeRestarted { .. } => {
            Event::new(Kind::Unknown)
        }
        _ => return None,
    })
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
}
