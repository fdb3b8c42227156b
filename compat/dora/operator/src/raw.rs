//! What [`register_operator!`](crate::register_operator) calls: the functions of dora's C interface for
//! an operator in Rust.
#![expect(unsafe_code, reason = "the interface to the host is C")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use dora_operator_api_c::Status;

pub use dora_operator_api_c::{DoraResult, InitResult, OnEventResult, RawEvent, SendOutput};

use crate::operator::types::{DoraStatus, Metadata};
use crate::operator::{DoraOperator, DoraOutputSender, Event};
use crate::payload;

/// Makes the operator.
pub fn init<O: DoraOperator>() -> InitResult {
    match unwound(|| Ok(Box::new(O::default()))) {
        Ok(operator) => InitResult {
            result: DoraResult::SUCCESS,
            operator_context: Box::into_raw(operator).cast(),
        },
        Err(error) => InitResult {
            result: DoraResult::error(&error),
            operator_context: ptr::null_mut(),
        },
    }
}

/// Drops the operator.
///
/// # Safety
/// `operator` is from [`init`] of the same type, and not dropped.
pub unsafe fn end<O: DoraOperator>(operator: *mut c_void) -> DoraResult {
    // SAFETY: the caller passes the pointer of `Box::into_raw`, once.
    let operator = unsafe { Box::from_raw(operator.cast::<O>()) };
    unwound(|| {
        drop(operator);
        Ok(())
    })
    .into()
}

/// Lets the operator handle an event.
///
/// # Safety
/// `operator` is from [`init`] of the same type, and not dropped. The other pointers are valid until the
/// function returns. No other thread uses one of them.
pub unsafe fn on_event<O: DoraOperator>(
    event: *mut RawEvent,
    send_output: *const SendOutput,
    operator: *mut c_void,
) -> OnEventResult {
    // SAFETY: the caller passes valid pointers, which nothing else uses meanwhile.
    let (event, mut sender, operator) = unsafe {
        (
            &mut *event,
            DoraOutputSender(&*send_output),
            &mut *operator.cast::<O>(),
        )
    };
    let handled = unwound(|| {
        // SAFETY: the event is valid until the function returns.
        unsafe { with_event(event, |event| operator.on_event(&event, &mut sender)) }
    });
    match handled {
        Ok(status) => OnEventResult {
            result: DoraResult::SUCCESS,
            status: match status {
                DoraStatus::Continue => Status::CONTINUE,
                DoraStatus::Stop => Status::STOP,
                DoraStatus::StopAll => Status::STOP_ALL,
            },
        },
        Err(error) => OnEventResult {
            result: DoraResult::error(&error),
            status: Status::STOP,
        },
    }
}

/// # Safety
/// The pointers of the event are valid.
unsafe fn with_event(
    event: &mut RawEvent,
    handle: impl FnOnce(Event) -> Result<DoraStatus, String>,
) -> Result<DoraStatus, String> {
    let metadata = Metadata {
        open_telemetry_context: String::new(),
    };
    // SAFETY: the caller passes a valid event.
    let (input, closed, error) = unsafe {
        (
            event.input.as_mut(),
            event.input_closed.as_slice(),
            event.error.as_slice(),
        )
    };
    if let Some(input) = input {
        // SAFETY: as above.
        let data = unsafe { payload::taken(input) };
        let id = &*input.id();
        return handle(match data {
            Ok(data) => Event::Input {
                id,
                metadata: &metadata,
                data,
            },
            Err(error) => Event::InputParseError { id, error },
        });
    }
    if event.input_closed.is_some() {
        let id = &*String::from_utf8_lossy(closed);
        return handle(Event::InputClosed { id });
    }
    if event.error.is_some() {
        let error = String::from_utf8_lossy(error).into_owned();
        return handle(Event::InputParseError { id: "", error });
    }
    match event.stop {
        true => handle(Event::Stop),
        false => Ok(DoraStatus::Continue),
    }
}

/// The result of a function, or its panic as an error: it must not unwind into C.
fn unwound<T>(function: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(format!(
            "the operator panicked: {}",
            text.unwrap_or("no message")
        ))
    })
}

#[cfg(test)]
mod tests {
    use arrow_data::ArrayData;
    use arrow_schema::DataType;
    use dora_operator_api_c::{Bytes, Input, Output};

    use super::*;
    use crate::DoraArray;

    /// Sends its inputs back, and keeps them.
    #[derive(Default)]
    struct Echo(Vec<DoraArray>);

    impl DoraOperator for Echo {
        fn on_event(
            &mut self,
            event: &Event,
            outputs: &mut DoraOutputSender,
        ) -> Result<DoraStatus, String> {
            match event {
                Event::Input { id, data, .. } => {
                    self.0.push(data.clone());
                    outputs.send(id, data.clone())?;
                    Ok(DoraStatus::Continue)
                }
                Event::InputClosed { id } => Err(format!("closed {id}")),
                Event::InputParseError { error, .. } => panic!("{error}"),
                Event::Stop => Ok(DoraStatus::Stop),
            }
        }
    }

    type Sent = Vec<(String, usize)>;

    unsafe extern "C" fn record(sent: *mut c_void, output: *mut Output) -> DoraResult {
        // SAFETY: the test passes its vector, and a valid output.
        let (sent, output) = unsafe { (&mut *sent.cast::<Sent>(), &*output) };
        sent.push((output.id().into_owned(), output.array.len()));
        DoraResult::SUCCESS
    }

    unsafe extern "C" fn nothing(_: *mut c_void) {}

    fn nothing_happens() -> RawEvent {
        RawEvent {
            input: ptr::null_mut(),
            input_closed: Bytes::NONE,
            stop: false,
            error: Bytes::NONE,
        }
    }

    #[test]
    fn events_reach_the_operator_and_its_answers_the_host() {
        let mut sent = Sent::new();
        let send_output = SendOutput {
            environment: (&raw mut sent).cast(),
            call: record,
            release: nothing,
            retain: nothing,
        };
        let operator = init::<Echo>().operator_context;
        let handle = |event: &mut RawEvent| {
            // SAFETY: the operator is from `init`, and all pointers are valid during the call.
            unsafe {
                let handled = on_event::<Echo>(event, &send_output, operator);
                handled.result.into_result().map(|()| handled.status)
            }
        };
        let array = ArrayData::new_null(&DataType::Int32, 3);
        let mut input = Input::of_array("in", &array).unwrap();
        let mut event = RawEvent {
            input: &raw mut input,
            ..nothing_happens()
        };
        assert_eq!(handle(&mut event), Ok(Status::CONTINUE));
        assert!(input.array.is_released());
        drop((input, array));
        assert_eq!(handle(&mut nothing_happens()), Ok(Status::CONTINUE));
        let mut event = RawEvent {
            stop: true,
            ..nothing_happens()
        };
        assert_eq!(handle(&mut event), Ok(Status::STOP));
        let mut event = RawEvent {
            input_closed: Bytes::new(b"in"),
            ..nothing_happens()
        };
        assert_eq!(handle(&mut event), Err("closed in".to_owned()));
        // SAFETY: the bytes are this test's.
        unsafe { event.input_closed.free() };
        let mut event = RawEvent {
            error: Bytes::new(b"broken"),
            ..nothing_happens()
        };
        let error = handle(&mut event).unwrap_err();
        assert_eq!(error, "the operator panicked: broken");
        // SAFETY: the bytes are this test's, and the operator is from `init`.
        unsafe {
            event.error.free();
            end::<Echo>(operator).into_result().unwrap();
        }
        assert_eq!(sent, [("in".to_owned(), 3)]);
    }
}
