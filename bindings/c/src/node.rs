//! Nodes: connecting, and what any thread may use.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_char};
use std::os::fd::{FromRawFd, OwnedFd};

use nervure_node::{Handle, Publisher, binding};

use crate::event::{Receiving, param_value};
use crate::pointers::{self, owned};
use crate::send::Output;
use crate::status::{Failure, Status, c_text, guarded};
use crate::value::Value;

/// A node of a running dataflow. One thread at a time may receive with it; any thread may send.
#[derive(Debug)]
pub struct Node {
    pub(crate) handle: Handle,
    pub(crate) outputs: Vec<Output>,
    id: CString,
    dataflow: CString,
    /// Used by one thread at a time, as the header requires.
    pub(crate) receiving: UnsafeCell<Receiving>,
}

impl Node {
    fn new(node: nervure_node::Node) -> Self {
        let (handle, events) = node.split();
        let publishers: Vec<Publisher> = handle
            .outputs()
            .filter_map(|name| handle.output(name).ok())
            .collect();
        let outputs = publishers.into_iter().map(Output::new).collect();
        Self {
            id: c_text(handle.id()),
            dataflow: c_text(handle.dataflow()),
            receiving: UnsafeCell::new(Receiving::new(events, &handle)),
            outputs,
            handle,
        }
    }
}

/// Connects to the keeper that started this program. For a node without inputs from other nodes this returns when the whole
/// dataflow is ready, so that no consumer misses its first samples. A process has one node. Free it with
/// `nervure_disconnect`.
///
/// # Safety
/// `node` is null, or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_connect(node: *mut *mut Node) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_connect", || unsafe {
        pointers::put(node, std::ptr::null_mut(), "node")?;
        let connected = Node::new(binding::connect("c", || true)?);
        pointers::put(node, owned(connected), "node")?;
        Ok(Status::Ok)
    })
}

/// Connects a component over the control socket that its host was given, which is the node's from now on.
/// `NERVURE_COMPONENT` calls it.
///
/// # Safety
/// `node` is null, or a place for a pointer. `control` is an open descriptor that nothing else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_component_connect(control: i32, node: *mut *mut Node) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_component_connect", || unsafe {
        let control = OwnedFd::from_raw_fd(control);
        pointers::put(node, std::ptr::null_mut(), "node")?;
        let connected = Node::new(binding::connect_over(control, "c")?);
        pointers::put(node, owned(connected), "node")?;
        Ok(Status::Ok)
    })
}

/// Joins a running dataflow as its node with that id, which has `path: dynamic` in the file. `dataflow` may be NULL: then it
/// is the one that `NERVURE_DATAFLOW` names, or the only one that runs. In a program that a keeper started this is
/// `nervure_connect`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_join(
    dataflow: *const c_char,
    id: *const c_char,
    node: *mut *mut Node,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_join", || unsafe {
        pointers::put(node, std::ptr::null_mut(), "node")?;
        let dataflow = match dataflow.is_null() {
            true => None,
            false => Some(pointers::text(dataflow, "dataflow")?),
        };
        let id = pointers::text(id, "node's id")?;
        let joined = Node::new(binding::join(dataflow, id, "c", || true)?);
        pointers::put(node, owned(joined), "node")?;
        Ok(Status::Ok)
    })
}

/// Ends the node: its consumers get `NERVURE_EVENT_INPUT_CLOSED` after the queued samples. Frees its outputs and its
/// event, but no samples.
///
/// # Safety
/// `node` is null, or from `nervure_connect` or `nervure_join` and not freed. No other thread uses it, or its outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_disconnect(node: *mut Node) {
    // SAFETY: the caller's promise.
    unsafe { pointers::free(node) }
}

/// Returns the node's id in the dataflow file. It is valid as long as the node is.
///
/// # Safety
/// `node` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_node_id(node: *const Node) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { node.as_ref() }.map_or(std::ptr::null(), |node| node.id.as_ptr())
}

/// Returns the dataflow's name. It is valid as long as the node is.
///
/// # Safety
/// `node` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_node_dataflow(node: *const Node) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { node.as_ref() }.map_or(std::ptr::null(), |node| node.dataflow.as_ptr())
}

/// Returns the number of restarts of the node: 0 at the first start.
///
/// # Safety
/// `node` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_node_incarnation(node: *const Node) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { node.as_ref() }.map_or(0, |node| node.handle.incarnation())
}

/// Returns the dataflow's clock, in nanoseconds since the Unix epoch. It stops while the dataflow is paused.
///
/// # Safety
/// `node` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_now(node: *const Node) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { node.as_ref() }.map_or(0, |node| node.handle.now())
}

/// Returns whether the dataflow is paused, for loops that receive nothing.
///
/// # Safety
/// `node` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_is_paused(node: *const Node) -> bool {
    // SAFETY: the caller's promise.
    unsafe { node.as_ref() }.is_some_and(|node| node.handle.is_paused())
}

/// Returns whether the node has to stop, for loops that receive nothing.
///
/// # Safety
/// `node` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_is_stopping(node: *const Node) -> bool {
    // SAFETY: the caller's promise.
    unsafe { node.as_ref() }.is_none_or(|node| node.handle.is_stopping())
}

/// Reports that this node, declared with `ready: manual`, is ready. The dataflow's sources start when all nodes are.
///
/// # Safety
/// `node` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_ready(node: *const Node) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_ready", || unsafe {
        pointers::shared(node, "node")?.handle.ready();
        Ok(Status::Ok)
    })
}

/// Finds an output. It is valid as long as the node is; keep it, as the search takes time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_find_output(
    node: *const Node,
    name: *const c_char,
    output: *mut *const Output,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_find_output", || unsafe {
        let node = pointers::shared(node, "node")?;
        let name = pointers::text(name, "output's name")?;
        pointers::put(output, std::ptr::null(), "output")?;
        let found = node
            .outputs
            .iter()
            .find(|known| known.publisher.name() == name);
        let found = match found {
            Some(found) => found,
            None => {
                return Err(node.handle.output(name).map_or_else(Failure::from, |_| {
                    Failure::new(Status::Defect, format!("output `{name}` was not found"))
                }));
            }
        };
        pointers::put(output, found, "output")?;
        Ok(Status::Ok)
    })
}

/// Reads the current value of a parameter: a boolean, an integer, a number, or a text; a list is its text in JSON. A text is
/// valid until the next call of this function, or of `nervure_next`, with the node. Only the thread that receives may call
/// it.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_param(
    node: *mut Node,
    name: *const c_char,
    value: *mut Value,
) -> Status {
    // SAFETY: the caller's promise. One thread receives, so nothing else uses the cell.
    guarded("nervure_param", || unsafe {
        let node = pointers::shared(node, "node")?;
        let param = node
            .handle
            .param(pointers::text(name, "parameter's name")?)?;
        let receiving = &mut *node.receiving.get();
        pointers::put(value, param_value(&param, &mut receiving.text), "value")?;
        Ok(Status::Ok)
    })
}
