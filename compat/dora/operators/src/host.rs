use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use arrow_data::ArrayData;
use arrow_schema::DataType;
use dora_operator_api_c::{Input, Status};
use nervure_node::binding::ALL_INPUTS_CLOSED;
use nervure_node::message::{ArraySample, Schema};
use nervure_node::{Envelope, Event, Handle, Node, Publisher, Sample, SendError, Wait};
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
    outputs: Outputs,
}

/// The outputs of an operator that it has sent to, by their names.
#[derive(Debug, Default)]
struct Outputs(HashMap<String, Output>);

#[derive(Debug)]
enum Output {
    Declared {
        publisher: Publisher,
        /// The schema of the last array: most outputs have one type.
        schema: Option<Schema>,
    },
    /// Not in the dataflow file, which was reported.
    Undeclared,
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
    Host { node, operators }.run()
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
        outputs: Outputs::default(),
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
}

impl Host {
    fn run(mut self) -> Result<(), HostError> {
        while !self.operators.is_empty() {
            let Some(event) = self.node.next() else { break };
            match event {
                Event::Input { id, sample } => {
                    self.input(&id, |input| sample_event(input, &sample))?;
                }
                Event::Tick { id, .. } => {
                    let nothing = ArrayData::new_empty(&DataType::Null);
                    self.input(&id, |input| array_event(input, &nothing))?;
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
        event: impl FnOnce(&str) -> OperatorEvent,
    ) -> Result<(), HostError> {
        match port.split_once('/') {
            Some((operator, input)) => self.handle(operator, event(input)),
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
        let (node, outputs) = (&self.node, &mut running.outputs);
        let mut send = |output: &str, array: ArrayData| outputs.send(node, id, output, &array);
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

impl Outputs {
    fn send(
        &mut self,
        node: &Handle,
        operator: &str,
        output: &str,
        array: &ArrayData,
    ) -> Result<(), String> {
        if !self.0.contains_key(output) {
            let declared = match node.output(&format!("{operator}/{output}")) {
                Ok(publisher) => Output::Declared {
                    publisher,
                    schema: None,
                },
                // In dora it is no error to send to an undeclared output.
                Err(error) => {
                    eprintln!("WARN {error}");
                    Output::Undeclared
                }
            };
            self.0.insert(output.to_owned(), declared);
        }
        match self.0.get_mut(output) {
            Some(Output::Declared { publisher, schema }) => publish(publisher, schema, array),
            _ => Ok(()),
        }
    }
}

fn publish(
    publisher: &Publisher,
    schema: &mut Option<Schema>,
    array: &ArrayData,
) -> Result<(), String> {
    let envelope = Envelope::new();
    let sent = match bytes(array) {
        Some(bytes) => publisher.send_with(bytes, &envelope, Wait::Forever),
        None => {
            let schema = Schema::last_or_of_type(schema, array.data_type()).map_err(text)?;
            let sample = ArraySample::new(array, schema).map_err(text)?;
            publisher.send_with(&sample, &envelope, Wait::Forever)
        }
    };
    match sent {
        // In dora it is no error to send while the dataflow stops.
        Ok(_) | Err(SendError::Stopped) => Ok(()),
        Err(error) => Err(text(error)),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The elements of an array of `UInt8`, which is sent as bytes.
fn bytes(array: &ArrayData) -> Option<&[u8]> {
    let is_bytes = *array.data_type() == DataType::UInt8 && array.null_count() == 0;
    is_bytes.then(|| &array.buffers()[0][array.offset()..array.offset() + array.len()])
}

fn sample_event(input: &str, sample: &Sample) -> OperatorEvent {
    match sample.array() {
        Ok(array) => array_event(input, &array),
        Err(error) => unreadable(input, &error),
    }
}

fn array_event(input: &str, array: &ArrayData) -> OperatorEvent {
    match Input::of_array(input, array) {
        Ok(input) => OperatorEvent::Input(input),
        Err(error) => unreadable(input, &error),
    }
}

fn unreadable(input: &str, error: &dyn std::fmt::Display) -> OperatorEvent {
    OperatorEvent::Error(format!("the data of input {input} cannot be read: {error}"))
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
