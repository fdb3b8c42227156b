//! The operator of the tests in Rust. The environment variable `MODE` lets it fail, stop, or send values
//! of several types.

use dora_operator_api::{
    DoraArray, DoraOperator, DoraOutputSender, DoraStatus, Event, IntoArrow, register_operator,
};

register_operator!(Conformance);

struct Conformance {
    mode: String,
    count: u32,
}

impl Default for Conformance {
    fn default() -> Self {
        let mode = std::env::var("MODE").unwrap_or_default();
        assert!(mode != "init", "no camera");
        Self { mode, count: 0 }
    }
}

impl DoraOperator for Conformance {
    fn on_event(
        &mut self,
        event: &Event,
        outputs: &mut DoraOutputSender,
    ) -> Result<DoraStatus, String> {
        match event {
            Event::Input { id, data, .. } if self.mode == "values" => {
                self.send_back(id, data, outputs)?
            }
            Event::Input { id, data, metadata } => {
                let bytes = <&[u8]>::try_from(data).map_err(|error| error.to_string())?;
                println!(
                    "input {id} {}{}",
                    bytes.len(),
                    metadata.open_telemetry_context
                );
                self.count += 1;
                let text = format!("number {}", self.count).into_bytes();
                let sent = outputs.send("text", text.into_arrow()).is_ok();
                let undeclared = outputs.send("undeclared", ()).is_ok();
                println!("sent {} {}", i32::from(sent), i32::from(undeclared));
            }
            Event::InputClosed { id } => println!("closed {id}"),
            Event::Stop => println!("stop"),
            other => println!("{other:?}"),
        }
        match self.mode.as_str() {
            "event" => Err("lens covered".to_owned()),
            "panic" => panic!("lens covered"),
            "stop" => Ok(DoraStatus::Stop),
            "stop all" => Ok(DoraStatus::StopAll),
            _ => Ok(DoraStatus::Continue),
        }
    }
}

impl Conformance {
    /// Sends a value as it is.
    fn send_back(
        &self,
        id: &str,
        data: &DoraArray,
        outputs: &mut DoraOutputSender,
    ) -> Result<(), String> {
        println!("input {id} {}", data.type_name());
        match id {
            "bytes" => outputs.send("values", data.clone()),
            // In dora 0.5 the name was a string.
            _ => outputs.send(String::from("values"), data.clone()),
        }
    }
}

impl Drop for Conformance {
    fn drop(&mut self) {
        println!("dropped after {}", self.count);
    }
}
