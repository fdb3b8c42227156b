//! Watches that no node of a fleet runs twice: two keepers of one run on one machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use nervure_keeper::descendants::MARK_VARIABLE;
use nervure_protocol::DATAFLOW_FILE_VARIABLE;

/// Interval between two looks at the processes.
const LOOK: Duration = Duration::from_millis(100);

/// The watch of one fleet, in a thread that ends with it.
pub struct Twice {
    found: Arc<Mutex<BTreeSet<String>>>,
    _ends: Sender<()>,
}

impl Twice {
    /// Watches the nodes of machines whose state is below a folder.
    pub fn watch(folder: PathBuf) -> Self {
        let found = Arc::<Mutex<BTreeSet<String>>>::default();
        let (ends, ended) = channel();
        let for_thread = Arc::clone(&found);
        std::thread::spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let now = look(&folder);
                let mut found = for_thread.lock().unwrap_or_else(PoisonError::into_inner);
                found.extend(now);
            }
        });
        Self { found, _ends: ends }
    }

    /// The nodes that have run twice at any time, with their keepers.
    pub fn found(&self) -> BTreeSet<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.clone()
    }
}

/// The nodes that run twice now.
fn look(folder: &Path) -> Vec<String> {
    let mut keepers: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some((file, node, keeper)) = node_of(&entry.path(), folder) else {
            continue;
        };
        keepers.entry((file, node)).or_default().insert(keeper);
    }
    let twice = keepers.into_iter().filter(|(_, keepers)| keepers.len() > 1);
    twice
        .map(|((file, node), keepers)| format!("{node} of {file} has the keepers {keepers:?}"))
        .collect()
}

/// The file, the node and the keeper of a process, if it belongs to a node whose keeper lives.
fn node_of(process: &Path, folder: &Path) -> Option<(String, String, String)> {
    let environment = fs::read(process.join("environ")).ok()?;
    let variables = String::from_utf8_lossy(&environment);
    let variable = |name: &str| {
        let mut all = variables.split('\0');
        all.find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
    };
    let file = variable(DATAFLOW_FILE_VARIABLE)?;
    let (keeper, node) = variable(MARK_VARIABLE)?.split_once('/')?;
    // The children of a node inherit the mark, and are adopted when a keeper has ended.
    let status = fs::read_to_string(process.join("status")).ok()?;
    let parent = status.lines().find_map(|it| it.strip_prefix("PPid:"))?;
    let is_node = parent.trim() == keeper.split_once('-')?.0;
    (is_node && Path::new(file).starts_with(folder))
        .then(|| (file.to_owned(), node.to_owned(), keeper.to_owned()))
}
