//! Silent inputs as dora has them.

use std::collections::HashMap;

use crate::handle::Handle;
use crate::receiving::Event;

/// The inputs with `expect_every` (dora's `input_timeout`) of a dora program, for which an input is
/// closed while it is silent for too long.
#[derive(Debug, Default)]
pub struct SilentInputs {
    inputs: HashMap<String, State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before its first sample an input is never silent for too long.
    NotArmed,
    Open,
    Silent,
}

/// Translation of an event for a dora program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The event itself.
    Event,
    /// The input recovered, and then the event itself.
    Recovery,
    /// The input is closed.
    Closed,
    /// No event.
    Nothing,
}

impl SilentInputs {
    /// The silent inputs of a node.
    pub fn new(handle: &Handle) -> Self {
        Self::named(handle.expected_inputs())
    }

    fn named<'a>(inputs: impl Iterator<Item = &'a str>) -> Self {
        let inputs = inputs.map(|input| (input.to_owned(), State::NotArmed));
        Self {
            inputs: inputs.collect(),
        }
    }

    /// Whether no input can be silent for too long: then each event is itself.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Takes note of an event. Ask once for each, in their order.
    pub fn note(&mut self, event: &Event) -> Heard {
        let (Event::Input { id, .. } | Event::Stale { id, .. } | Event::InputClosed { id }) = event
        else {
            return Heard::Event;
        };
        let Some(state) = self.inputs.get_mut(&**id) else {
            return Heard::Event;
        };
        match (event, *state) {
            (Event::Input { .. }, before) => {
                *state = State::Open;
                match before {
                    State::Silent => Heard::Recovery,
                    State::NotArmed | State::Open => Heard::Event,
                }
            }
            (Event::Stale { .. }, State::Open) => {
                *state = State::Silent;
                Heard::Closed
            }
            // An input that is silent was reported as closed before.
            (Event::Stale { .. }, _) | (_, State::Silent) => Heard::Nothing,
            _ => Heard::Event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn stale(count: u64) -> Event {
        Event::Stale {
            id: "scan".into(),
            age: Duration::from_secs(count),
            count,
        }
    }

    fn closed(id: &str) -> Event {
        Event::InputClosed { id: id.into() }
    }

    #[test]
    fn an_input_is_not_silent_before_its_first_sample() {
        let mut inputs = SilentInputs::named(["scan"].into_iter());
        let heard = [stale(1), stale(2), closed("scan")].map(|event| inputs.note(&event));
        assert_eq!(heard, [Heard::Nothing, Heard::Nothing, Heard::Event]);
    }

    #[test]
    fn a_silent_input_is_closed_once() {
        let mut inputs = SilentInputs::named(["scan"].into_iter());
        inputs.inputs.insert("scan".to_owned(), State::Open);
        let heard = [stale(1), stale(2), closed("scan")].map(|event| inputs.note(&event));
        assert_eq!(heard, [Heard::Closed, Heard::Nothing, Heard::Nothing]);
    }

    #[test]
    fn events_of_other_inputs_are_themselves() {
        let mut inputs = SilentInputs::named(["scan"].into_iter());
        let stop = Event::Stop {
            reason: String::new(),
        };
        for event in [closed("image"), stop] {
            assert_eq!(inputs.note(&event), Heard::Event);
        }
    }
}
