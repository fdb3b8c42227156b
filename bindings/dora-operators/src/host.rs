use std::collections::HashSet;
use std::path::PathBuf;

use arrow_schema::DataType;
use dora_operator_api_c::{Input, Output, Status};
use nervure_node::binding::ALL_INPUTS_CLOSED;
use nervure_node::message::Layout;
use nervure_node::{Envelope, Event, Handle, Node, Sample, SampleError, SendError};
use serde::Deserialize;

use crate::library::{Operator, OperatorEvent};
use crate::{HostError, OPERATORS_VARIABLE};

/// An operator as the keeper describes it.
#[derive(Debug, Deserialize)]
struct Description {
    id: String,
    shared_library: PathBuf,
    inputs: Vec<String>,
}

/// An operator that runs.
#[derive(Debug)]
struct Running {
    id: String,
    operator: Operator,
    open_inputs: HashSet<String>,
}

/// Runs the operators that the keeper names, until the last one has ended.
///
/// # Errors
/// [`HostError`], also when an operator reports an error: then the node has failed.
pub fn host() -> Result<(), HostError> {
    let descriptions = descriptions(std::env::var(OPERATORS_VARIABLE).ok())?;
    let operators = descriptions
        .into_iter()
        .map(begin)
        .collect::<Result<Vec<_>, _>>()?;
    let node = nervure_node::binding::connect("c", || true)?;
    Host {
        node,
        operators,
        undeclared: HashSet::new(),
    }
    .run()
}

fn descriptions(variable: Option<String>) -> Result<Vec<Description>, HostError> {
    let failed = |error: &str| HostError::Operators(error.to_owned());
    let text = variable.ok_or_else(|| failed("it is not set"))?;
    let found: Vec<Description> =
        serde_json::from_str(&text).map_err(|error| failed(&error.to_string()))?;
    match found.is_empty() {
        true => Err(failed("the list is empty")),
        false => Ok(found),
    }
}

fn begin(description: Description) -> Result<Running, HostError> {
    let Description {
        id,
        shared_library,
        inputs,
    } = description;
    let loaded = Operator::load(&shared_library).map_err(|cause| HostError::Library {
        operator: id.clone(),
        path: shared_library.display().to_string(),
        cause,
    })?;
    let operator = loaded
        .begin()
        .map_err(|message| operator_error(&id, "dora_init_operator", message))?;
    Ok(Running {
        id,
        operator,
        open_inputs: inputs.into_iter().collect(),
    })
}

fn operator_error(id: &str, function: &'static str, message: String) -> HostError {
    HostError::Operator {
        operator: id.to_owned(),
        function,
        message,
    }
}

struct Host {
    node: Node,
    operators: Vec<Running>,
    /// Undeclared outputs that were reported.
    undeclared: HashSet<String>,
}

impl Host {
    fn run(mut self) -> Result<(), HostError> {
        while !self.operators.is_empty() {
            let Some(event) = self.node.next() else { break };
            match event {
                Event::Input { id, sample } => {
                    self.input(&id, |input| match data(&sample) {
                        Ok(data) => OperatorEvent::Input(Input::new(input, data)),
                        Err(error) => OperatorEvent::Error(format!(
                            "the data of input {input} cannot be read: {error}"
                        )),
                    })?;
                }
                Event::Tick { id, .. } => {
                    self.input(&id, |id| OperatorEvent::Input(Input::new(id, None)))?;
                }
                Event::InputClosed { id } => self.close(&id)?,
                // Operators have ended when their own inputs were closed.
                Event::Stop { reason } if reason == ALL_INPUTS_CLOSED => {}
                Event::Stop { .. } => {
                    while let Some(running) = self.operators.last() {
                        let id = running.id.clone();
                        self.handle(&id, OperatorEvent::Stop)?;
                        self.end(&id)?;
                    }
                }
                _ => {}
            }
        }
        while let Some(running) = self.operators.last() {
            let id = running.id.clone();
            self.end(&id)?;
        }
        Ok(())
    }

    /// Passes an event of the input `operator/input` on.
    fn input(
        &mut self,
        port: &str,
        event: impl FnOnce(String) -> OperatorEvent,
    ) -> Result<(), HostError> {
        match port.split_once('/') {
            Some((operator, input)) => self.handle(operator, event(input.to_owned())),
            None => Ok(()),
        }
    }

    /// Reports a closed input to its operator, and ends it with its last input.
    fn close(&mut self, port: &str) -> Result<(), HostError> {
        let Some((operator, input)) = port.split_once('/') else {
            return Ok(());
        };
        self.handle(operator, OperatorEvent::InputClosed(input.to_owned()))?;
        let running = self.operators.iter_mut().find(|known| known.id == operator);
        let Some(running) = running else {
            return Ok(());
        };
        running.open_inputs.remove(input);
        match running.open_inputs.is_empty() {
            true => self.end(operator),
            false => Ok(()),
        }
    }

    /// Lets an operator handle an event. One that has ended gets none.
    fn handle(&mut self, id: &str, event: OperatorEvent) -> Result<(), HostError> {
        let Some(running) = self.operators.iter_mut().find(|known| known.id == id) else {
            return Ok(());
        };
        let (node, undeclared) = (&self.node, &mut self.undeclared);
        let mut send = |output| send(node, undeclared, id, output);
        let status = running
            .operator
            .handle(event, &mut send)
            .map_err(|message| operator_error(id, "dora_on_event", message))?;
        match status {
            Status::STOP => self.end(id),
            Status::STOP_ALL => Err(HostError::StopAll {
                operator: id.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn end(&mut self, id: &str) -> Result<(), HostError> {
        let Some(at) = self.operators.iter().position(|known| known.id == id) else {
            return Ok(());
        };
        let ended = self.operators.remove(at).operator.end();
        ended.map_err(|message| operator_error(id, "dora_drop_operator", message))
    }
}

fn send(
    node: &Handle,
    undeclared: &mut HashSet<String>,
    operator: &str,
    output: Output,
) -> Result<(), String> {
    let name = format!("{operator}/{}", output.id());
    match node.send_with(&name, output.data(), &Envelope::new()) {
        // In dora it is no error to send while the dataflow stops, or to an undeclared output.
        Ok(_) | Err(SendError::Stopped) => Ok(()),
        Err(SendError::UnknownOutput(error)) => {
            if undeclared.insert(name) {
                eprintln!("WARN {error}");
            }
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The bytes of a sample; `None` for data that C cannot read.
fn data(sample: &Sample) -> Result<Option<Vec<u8>>, SampleError> {
    if matches!(sample.layout()?, Layout::Bytes | Layout::Text) {
        return Ok(Some(sample.bytes().to_vec()));
    }
    let array = sample.array()?;
    let is_bytes = *array.data_type() == DataType::UInt8;
    Ok(is_bytes.then(|| array.buffers()[0][array.offset()..array.offset() + array.len()].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_read_from_json() {
        let json =
            r#"[{"id":"op","shared_library":"/a/libop.so","inputs":["image"],"outputs":[]}]"#;
        let found = descriptions(Some(json.to_owned())).unwrap();
        assert_eq!(
            (&*found[0].id, &found[0].inputs[..]),
            ("op", &["image".to_owned()][..])
        );
        for wrong in [None, Some("[]"), Some("{}"), Some(r#"[{"id":"op"}]"#)] {
            let error = descriptions(wrong.map(str::to_owned)).unwrap_err();
            assert!(
                error.to_string().starts_with("NERVURE_OPERATORS"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_named() {
        let description = Description {
            id: "op".to_owned(),
            shared_library: "/nowhere/libop.so".into(),
            inputs: Vec::new(),
        };
        let error = begin(description).unwrap_err().to_string();
        assert!(
            error.contains("operator op: the library /nowhere/libop.so"),
            "{error}"
        );
        assert!(error.contains("-ldora_operator_api_c"), "{error}");
    }
}
