//! The functions of dora's C API for nodes, over Nervure. `include/node_api.h` describes them.
#![expect(unsafe_code, reason = "C passes pointers")]

mod event;

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_ulonglong};
use std::ptr;

use event::{Converter, Event, Kind};
use nervure_node::{Envelope, Events, Handle, SendError, binding};

/// What `dora_context` points to.
#[derive(Debug)]
pub struct Context {
    handle: Handle,
    events: Events,
    converter: Converter,
    /// Undeclared outputs that were reported.
    reported: HashSet<String>,
}

/// Connects to the keeper that started the program. Returns null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn init_dora_context_from_env() -> *mut Context {
    match binding::connect("c", || true) {
        Ok(node) => {
            let (handle, mut events) = node.split();
            binding::deliver_samples_after_stop(&mut events);
            Box::into_raw(Box::new(Context {
                converter: Converter::new(&handle),
                handle,
                events,
                reported: HashSet::new(),
            }))
        }
        Err(error) => {
            eprintln!("ERROR init_dora_context_from_env: {error}");
            ptr::null_mut()
        }
    }
}

/// Ends the node.
///
/// # Safety
/// `context` is null, or from [`init_dora_context_from_env`] and not freed. No other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_dora_context(context: *mut Context) {
    if !context.is_null() {
        // SAFETY: the caller passes the pointer of `Box::into_raw`, once.
        drop(unsafe { Box::from_raw(context) });
    }
}

/// Waits for the next event. Returns null after the last one.
///
/// # Safety
/// As [`free_dora_context`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_next_event(context: *mut Context) -> *mut Event {
    // SAFETY: the caller passes a valid context that no other thread uses, or null.
    let Some(context) = (unsafe { context.as_mut() }) else {
        report("dora_next_event", "the context is NULL");
        return ptr::null_mut();
    };
    loop {
        if let Some(event) = context.converter.take_rest() {
            return Box::into_raw(Box::new(event));
        }
        let Some(event) = context.events.next() else {
            return ptr::null_mut();
        };
        if let Some(event) = context.converter.convert(event) {
            return Box::into_raw(Box::new(event));
        }
    }
}

/// Frees an event.
///
/// # Safety
/// `event` is null, or from [`dora_next_event`] and not freed. Data read from it is not used later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_dora_event(event: *mut Event) {
    if !event.is_null() {
        // SAFETY: the caller passes the pointer of `Box::into_raw`, once.
        drop(unsafe { Box::from_raw(event) });
    }
}

/// Returns the kind of an event.
///
/// # Safety
/// As [`free_dora_event`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read_dora_event_type(event: *const Event) -> Kind {
    // SAFETY: the caller passes a valid event, or null.
    match unsafe { event.as_ref() } {
        Some(event) => event.kind(),
        None => {
            report("read_dora_event_type", "the event is NULL");
            Kind::Unknown
        }
    }
}

/// Reads the name of an input.
///
/// # Safety
/// As [`free_dora_event`]; `start` and `length` are null, or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read_dora_input_id(
    event: *const Event,
    start: *mut *const u8,
    length: *mut usize,
) {
    // SAFETY: the caller passes a valid event or null, and pointers that may be written to.
    unsafe {
        let id = event.as_ref().and_then(Event::input_id);
        put(id.map(str::as_bytes), start, length);
    }
}

/// Reads the bytes of an input.
///
/// # Safety
/// As [`read_dora_input_id`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read_dora_input_data(
    event: *const Event,
    start: *mut *const u8,
    length: *mut usize,
) {
    // SAFETY: the caller passes a valid event or null, and pointers that may be written to.
    unsafe { put(event.as_ref().and_then(Event::data), start, length) }
}

/// Reads the time of publication of an input.
///
/// # Safety
/// As [`free_dora_event`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read_dora_input_timestamp(event: *const Event) -> c_ulonglong {
    // SAFETY: the caller passes a valid event, or null.
    unsafe { event.as_ref() }.map_or(0, Event::timestamp)
}

/// Sends bytes. Returns 0, or -1.
///
/// # Safety
/// As [`free_dora_context`]; `id` and `data` are null, or point to as many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_send_output(
    context: *mut Context,
    id: *const c_char,
    id_length: usize,
    data: *const c_char,
    data_length: usize,
) -> c_int {
    // SAFETY: the caller passes a valid context that no other thread uses or null, and valid slices.
    let sent = unsafe {
        match (
            context.as_mut(),
            text(id, id_length),
            bytes(data, data_length),
        ) {
            (None, _, _) => Err("the context is NULL".to_owned()),
            (_, Err(error), _) => Err(format!("the output's name {error}")),
            (_, _, Err(error)) => Err(format!("the data {error}")),
            (Some(context), Ok(id), Ok(data)) => context.send(id, data),
        }
    };
    returned("dora_send_output", sent)
}

/// Writes a line to the log. Returns 0, or -1.
///
/// # Safety
/// As [`dora_send_output`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_log(
    context: *mut Context,
    level: *const c_char,
    level_length: usize,
    message: *const c_char,
    message_length: usize,
) -> c_int {
    // SAFETY: the caller passes valid slices; the context is not read.
    let texts = unsafe { (text(level, level_length), text(message, message_length)) };
    let logged = match texts {
        _ if context.is_null() => Err("the context is NULL".to_owned()),
        (Err(error), _) => Err(format!("the level {error}")),
        (_, Err(error)) => Err(format!("the message {error}")),
        (Ok(level), Ok(message)) => {
            println!("{} {message}", level_name(level));
            Ok(())
        }
    };
    returned("dora_log", logged)
}

impl Context {
    fn send(&mut self, id: &str, data: &[u8]) -> Result<(), String> {
        match self.handle.send_with(id, data, &Envelope::new()) {
            // In dora it is no error to send while the dataflow stops, or to an undeclared output.
            Ok(_) | Err(SendError::Stopped) => Ok(()),
            Err(SendError::UnknownOutput(error)) => {
                if self.reported.insert(id.to_owned()) {
                    eprintln!("WARN dora_send_output: {error}");
                }
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The level as Nervure finds it in a line.
fn level_name(level: &str) -> &'static str {
    match level.to_lowercase().as_str() {
        "error" => "ERROR",
        "warn" | "warning" => "WARN",
        "debug" => "DEBUG",
        "trace" => "TRACE",
        _ => "INFO",
    }
}

fn returned(function: &str, result: Result<(), String>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            report(function, &error);
            -1
        }
    }
}

fn report(function: &str, error: &str) {
    eprintln!("ERROR {function}: {error}");
}

/// # Safety
/// The pointers are null, or may be written to.
unsafe fn put(bytes: Option<&[u8]>, start: *mut *const u8, length: *mut usize) {
    let bytes = bytes.filter(|bytes| !bytes.is_empty());
    // SAFETY: the caller promises that non-null pointers may be written to.
    unsafe {
        if let Some(start) = start.as_mut() {
            *start = bytes.map_or(ptr::null(), <[u8]>::as_ptr);
        }
        if let Some(length) = length.as_mut() {
            *length = bytes.map_or(0, <[u8]>::len);
        }
    }
}

/// # Safety
/// `start` is null, or points to `length` bytes that live as long as the result is used.
unsafe fn bytes<'a>(start: *const c_char, length: usize) -> Result<&'a [u8], String> {
    match length {
        0 => Ok(&[]),
        _ if start.is_null() => Err(format!("is NULL, and has a length of {length}")),
        // SAFETY: the pointer is not null, so it points to that many bytes.
        _ => Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) }),
    }
}

/// # Safety
/// As [`bytes`].
unsafe fn text<'a>(start: *const c_char, length: usize) -> Result<&'a str, String> {
    // SAFETY: the caller keeps the conditions of `bytes`.
    let bytes = unsafe { bytes(start, length) }?;
    std::str::from_utf8(bytes).map_err(|error| format!("is not UTF-8: {error}"))
}

#[cfg(test)]
mod tests;
