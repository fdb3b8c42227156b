//! Nervure's events as dora's.

use std::collections::VecDeque;

use arrow::array::make_array;
use nervure_node::binding::{ALL_INPUTS_CLOSED, Heard, SilentInputs};
use nervure_node::{Event as Nervure, Handle, Sample};

use super::{Event, StopCause};
use crate::bridge::to_dora;
use crate::metadata::{self, Metadata};
use dora_arrow_convert::{DoraArray, IntoArrow};

/// Converts events. One event may become two, or none.
#[derive(Debug, Default)]
pub(crate) struct Converter {
    silence: SilentInputs,
}

impl Converter {
    pub(crate) fn new(handle: &Handle) -> Self {
        Self {
            silence: SilentInputs::new(handle),
        }
    }

    pub(crate) fn convert(&mut self, event: Nervure, events: &mut VecDeque<Event>) {
        let heard = self.silence.note(&event);
        let event = match event {
            _ if heard == Heard::Nothing => return,
            Nervure::Input { id, sample } => {
                if heard == Heard::Recovery {
                    events.push_back(Event::InputRecovered { id: (&*id).into() });
                }
                input(&id, &sample)
            }
            Nervure::Tick { id, due, .. } => Event::Input {
                id: (&*id).into(),
                metadata: Metadata::new(metadata::timestamp(due)),
                data: ().into_arrow(),
            },
            Nervure::InputClosed { id } | Nervure::Stale { id, .. } => {
                Event::InputClosed { id: (&*id).into() }
            }
            Nervure::Param { name, value } => Event::ParamUpdate { key: name, value },
            // dora reports only the restart.
            Nervure::NodeFailed { restarts: true, .. } => return,
            Nervure::NodeFailed {
                node,
                inputs,
                reason,
                ..
            } => Event::NodeFailed {
                affected_input_ids: inputs.into_iter().map(Into::into).collect(),
                error: reason,
                source_node_id: node.into(),
            },
            Nervure::NodeRestarted { node, .. } => Event::NodeRestarted { id: node.into() },
            Nervure::Stop { reason } if reason == ALL_INPUTS_CLOSED => {
                Event::Stop(StopCause::AllInputsClosed)
            }
            Nervure::Stop { .. } => Event::Stop(StopCause::Manual),
            // Kinds that dora does not have.
            _ => return,
        };
        events.push_back(event);
    }
}

fn input(id: &str, sample: &Sample) -> Event {
    match read(sample) {
        Ok((metadata, data)) => Event::Input {
            id: id.into(),
            metadata,
            data,
        },
        Err(error) => Event::Error(format!("the data of input `{id}` cannot be read: {error}")),
    }
}

fn read(sample: &Sample) -> Result<(Metadata, DoraArray), Box<dyn std::error::Error>> {
    let parameters = metadata::from_nervure(&sample.metadata()?);
    let metadata = Metadata::from_parameters(metadata::timestamp(sample.stamp()), parameters);
    let data = DoraArray(make_array(to_dora::array(&sample.array()?)?));
    Ok((metadata, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(events: Vec<Nervure>) -> Vec<String> {
        let (mut converter, mut all) = (Converter::default(), VecDeque::new());
        for event in events {
            converter.convert(event, &mut all);
        }
        all.iter().map(|event| format!("{event:?}")).collect()
    }

    fn stop(reason: &str) -> Nervure {
        Nervure::Stop {
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn the_causes_of_a_stop_differ() {
        let events = converted(vec![
            stop(ALL_INPUTS_CLOSED),
            stop("stopped by `nervure stop`"),
        ]);
        assert_eq!(events, ["Stop(AllInputsClosed)", "Stop(Manual)"]);
    }

    #[test]
    fn a_tick_is_an_input_without_data() {
        let tick = Nervure::Tick {
            id: "tick".into(),
            due: 2_000_000_000,
            missed: 0,
        };
        let mut events = VecDeque::new();
        Converter::default().convert(tick, &mut events);
        let Some(Event::Input { id, metadata, data }) = events.pop_front() else {
            panic!("not an input");
        };
        assert_eq!(
            (id.as_str(), data.len(), data.type_name().as_str()),
            ("tick", 0, "Null")
        );
        assert_eq!(metadata.timestamp().get_time().as_secs(), 2);
    }
}
