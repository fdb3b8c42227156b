//! The thread of a node: loads its component, and calls the entry.
#![expect(unsafe_code, reason = "components are loaded, and their entry is C")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nervure_protocol::graph::Program;
use nervure_protocol::host_to_keeper::{Ended, Message};
use nervure_protocol::keeper_to_host::Start;
use nervure_shm::component::{ENTRY, Entry, REASON_BYTES, prepare_thread};

use crate::exit;
use crate::report::Keeper;
use crate::stdio::flush;

/// The stack of a node's thread: as much as the main thread of a program has by default, so that a
/// node needs no change to be composed. Linux backs it page by page, as it is used.
const STACK_BYTES: usize = 8 << 20;

/// The code of a node that could not begin.
const NOT_BEGUN: i32 = 1;

/// Starts a node on a thread of its own. Reports its end, also if it cannot begin.
pub fn start(start: Start, control: OwnedFd, keeper: &Arc<Keeper>) {
    let id = start.node.clone();
    let on_thread = keeper.clone();
    let started = thread::Builder::new()
        .name(id.clone())
        .stack_size(STACK_BYTES)
        .spawn(move || run(&start, control, &on_thread));
    if let Err(error) = started {
        let reason = format!("there is no thread for it: {error}");
        keeper.report(&Message::Ended(Ended {
            node: id,
            code: NOT_BEGUN,
            reason,
        }));
    }
}

fn run(start: &Start, control: OwnedFd, keeper: &Arc<Keeper>) {
    let node = start.node.clone();
    let thread = rustix::thread::gettid().as_raw_pid().unsigned_abs();
    keeper.report(&Message::Running {
        node: node.clone(),
        thread,
    });
    exit::set_node(Some((node.clone(), keeper.clone())));
    let (code, reason) = match prepare(start) {
        Ok(entry) => enter(entry, control),
        Err(reason) => (NOT_BEGUN, reason),
    };
    exit::set_node(None);
    flush();
    keeper.report(&Message::Ended(Ended { node, code, reason }));
}

fn prepare(start: &Start) -> Result<Entry, String> {
    prepare_thread(&start.cpu_affinity, start.scheduling)?;
    match &start.program {
        Program::Component(component) => load(component),
        other => Err(format!("{other} is not a component")),
    }
}

/// Loads a component, as its file is now. It stays loaded until the process ends: a node may have left
/// threads.
fn load(path: &Path) -> Result<Entry, String> {
    let name = loaded_name(path);
    // SAFETY: the user names the library in the dataflow file, to have its code run. All symbols are
    // bound now, so that a missing one is an error here.
    let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
    let library =
        library.map_err(|error| format!("{} cannot be loaded: {error}", path.display()))?;
    // SAFETY: a function of this name has the type of the interface's version.
    let entry = unsafe { library.get::<Entry>(ENTRY.to_bytes_with_nul()) };
    let entry = entry.map(|entry| *entry).map_err(|_| {
        format!(
            "{} is not a component: it has no function `{}`, which `nervure_node::component!` and `NERVURE_COMPONENT` define",
            path.display(),
            ENTRY.to_string_lossy()
        )
    })?;
    std::mem::forget(library);
    Ok(entry)
}

/// The name by which the file at `path` is loaded. For a known name, the dynamic linker returns the library
/// that it has loaded by that name, even if the file was replaced; a new file gets another spelling of its
/// path.
fn loaded_name(path: &Path) -> PathBuf {
    /// The files, as device and inode, that were loaded from each path, in their order.
    static LOADED: Mutex<BTreeMap<PathBuf, Vec<(u64, u64)>>> = Mutex::new(BTreeMap::new());
    // A file that does not exist is an error of the linker.
    let file = std::fs::metadata(path).map_or((0, 0), |found| (found.dev(), found.ino()));
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let files = loaded.entry(path.to_owned()).or_default();
    let at = files.iter().position(|known| *known == file);
    let at = at.unwrap_or_else(|| {
        files.push(file);
        files.len() - 1
    });
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_owned();
    };
    let mut spelt = folder.as_os_str().to_owned();
    spelt.push("/.".repeat(at));
    Path::new(&spelt).join(name)
}

fn enter(entry: Entry, control: OwnedFd) -> (i32, String) {
    let mut reason = [0u8; REASON_BYTES];
    // SAFETY: the control socket is given away, and `reason` has that size.
    let code = unsafe {
        entry(
            control.into_raw_fd(),
            reason.as_mut_ptr().cast::<c_char>(),
            reason.len(),
        )
    };
    let text = CStr::from_bytes_until_nul(&reason).unwrap_or_default();
    (code, text.to_string_lossy().into_owned())
}
