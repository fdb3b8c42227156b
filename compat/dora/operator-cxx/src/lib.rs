//! dora's C++ API for operators, over Nervure. cxx generates the header from [`ffi`].
#![expect(unsafe_code, reason = "the functions of an operator are C++")]

use dora_operator_api::{
    DoraOperator, DoraOutputSender, DoraStatus, Event, IntoArrow, register_operator,
};
use ffi::{DoraOnInputResult, DoraSendOutputResult};

#[cxx::bridge]
mod ffi {
    struct DoraOnInputResult {
        error: String,
        stop: bool,
    }

    struct DoraSendOutputResult {
        error: String,
    }

    extern "Rust" {
        type OutputSender<'a, 'b>;

        /// Sends bytes.
        fn send_output(sender: &mut OutputSender, id: &str, data: &[u8]) -> DoraSendOutputResult;
    }

    // SAFETY: the program defines these functions in C++, by the signatures that cxx checks.
    unsafe extern "C++" {
        include!("operator.h");

        type Operator;

        fn new_operator() -> UniquePtr<Operator>;
        fn on_input(
            program: Pin<&mut Operator>,
            id: &str,
            data: &[u8],
            sender: &mut OutputSender,
        ) -> DoraOnInputResult;
        fn on_input_closed(
            program: Pin<&mut Operator>,
            id: &str,
            sender: &mut OutputSender,
        ) -> DoraOnInputResult;
        fn on_stop(program: Pin<&mut Operator>, sender: &mut OutputSender) -> DoraOnInputResult;
        fn on_input_parse_error(
            program: Pin<&mut Operator>,
            id: &str,
            error: &str,
            sender: &mut OutputSender,
        ) -> DoraOnInputResult;
    }
}

/// Sends outputs, while an event is handled.
struct OutputSender<'a, 'b>(&'a mut DoraOutputSender<'b>);

fn send_output(sender: &mut OutputSender, id: &str, data: &[u8]) -> DoraSendOutputResult {
    let sent = sender.0.send(id, data.to_vec().into_arrow());
    DoraSendOutputResult {
        error: sent.err().unwrap_or_default(),
    }
}

register_operator!(Program);

/// The program's operator.
struct Program(cxx::UniquePtr<ffi::Operator>);

impl Default for Program {
    fn default() -> Self {
        Self(ffi::new_operator())
    }
}

impl DoraOperator for Program {
    fn on_event(
        &mut self,
        event: &Event,
        outputs: &mut DoraOutputSender,
    ) -> Result<DoraStatus, String> {
        let Some(operator) = self.0.as_mut() else {
            return Err("`new_operator` returned no operator".to_owned());
        };
        let mut sender = OutputSender(outputs);
        let DoraOnInputResult { error, stop } = match event {
            Event::Input { id, data, .. } if data.is_empty() => {
                ffi::on_input(operator, id, &[], &mut sender)
            }
            Event::Input { id, data, .. } => {
                let data =
                    <&[u8]>::try_from(data).map_err(|error| format!("input {id}: {error}"))?;
                ffi::on_input(operator, id, data, &mut sender)
            }
            Event::InputClosed { id } => ffi::on_input_closed(operator, id, &mut sender),
            Event::InputParseError { id, error } => {
                ffi::on_input_parse_error(operator, id, error, &mut sender)
            }
            Event::Stop => ffi::on_stop(operator, &mut sender),
            _ => return Ok(DoraStatus::Continue),
        };
        match (error.is_empty(), stop) {
            (false, _) => Err(error),
            (true, true) => Ok(DoraStatus::Stop),
            (true, false) => Ok(DoraStatus::Continue),
        }
    }
}
