use std::collections::HashMap;

use crate::event_stream::Event;
use crate::id::{DataId, NodeId};
use dora_arrow_convert::DoraArray;

/// Whether an input has a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputState {
    /// Data arrives.
    Healthy,
    /// The input was closed.
    Closed,
}

/// Keeps the state and the newest data of each input, for nodes that continue with old data.
#[derive(Debug, Default)]
pub struct InputTracker {
    states: HashMap<DataId, InputState>,
    newest: HashMap<DataId, DoraArray>,
    sources: HashMap<DataId, NodeId>,
}

impl InputTracker {
    /// A tracker without inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tracker with the node that feeds each input: a restart of that node opens the input.
    pub fn with_source_map(source_map: HashMap<DataId, NodeId>) -> Self {
        Self {
            sources: source_map,
            ..Self::default()
        }
    }

    /// Takes note of an event. Returns whether it was about an input.
    pub fn process_event(&mut self, event: &Event) -> bool {
        match event {
            Event::Input { id, data, .. } => {
                self.states.insert(id.clone(), InputState::Healthy);
                self.newest.insert(id.clone(), data.clone());
            }
            Event::InputClosed { id } => {
                self.states.insert(id.clone(), InputState::Closed);
            }
            Event::InputRecovered { id } => {
                self.states.insert(id.clone(), InputState::Healthy);
            }
            Event::NodeRestarted { id } => {
                let fed = self.sources.iter().filter(|(_, node)| *node == id);
                for (input, _) in fed {
                    if let Some(state) = self.states.get_mut(input) {
                        *state = InputState::Healthy;
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// The state of an input; `None` before its first event.
    pub fn state(&self, id: &DataId) -> Option<InputState> {
        self.states.get(id).copied()
    }

    /// Whether the input is closed.
    pub fn is_closed(&self, id: &DataId) -> bool {
        self.state(id) == Some(InputState::Closed)
    }

    /// The newest data of an input, also after it was closed.
    pub fn last_value(&self, id: &DataId) -> Option<&DoraArray> {
        self.newest.get(id)
    }

    /// The closed inputs.
    pub fn closed_inputs(&self) -> Vec<&DataId> {
        let closed = |(_, state): &(_, &InputState)| **state == InputState::Closed;
        let closed = self.states.iter().filter(closed);
        closed.map(|(id, _)| id).collect()
    }

    /// Whether any input is closed.
    pub fn any_closed(&self) -> bool {
        self.states
            .values()
            .any(|state| *state == InputState::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IntoArrow, Metadata, metadata};

    #[test]
    fn a_closed_input_keeps_its_newest_data() {
        let id = DataId::from("image");
        let mut tracker = InputTracker::with_source_map([(id.clone(), "camera".into())].into());
        assert_eq!(tracker.state(&id), None);
        let input = Event::Input {
            id: id.clone(),
            metadata: Metadata::new(metadata::timestamp(0)),
            data: 7_u8.into_arrow(),
        };
        assert!(tracker.process_event(&input));
        assert!(tracker.process_event(&Event::InputClosed { id: id.clone() }));
        assert!(tracker.is_closed(&id) && tracker.any_closed());
        assert_eq!(tracker.closed_inputs(), [&id]);
        assert_eq!(u8::try_from(tracker.last_value(&id).unwrap()).unwrap(), 7);
        assert!(tracker.process_event(&Event::NodeRestarted {
            id: "camera".into()
        }));
        assert_eq!(tracker.state(&id), Some(InputState::Healthy));
        assert!(!tracker.process_event(&Event::Error("other".to_owned())));
    }
}
