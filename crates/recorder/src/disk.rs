//! A thread that writes to disk. Receiving samples waits for the disk only when the queue of blocks
//! is full.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes that may be queued for the disk. Beyond that `write` blocks.
const MAX_WAITING_BYTES: usize = 128 << 20;
/// Written blocks that are kept for reuse: page faults of fresh memory cost more than the copy into
/// it.
const MAX_SPARE_BLOCKS: usize = 4;

/// A file that is written block by block. A block is in the file completely or not at all.
#[derive(Debug)]
pub(crate) struct Disk {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<File>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    accepted_bytes: u64,
    accepted_blocks: u64,
    written_blocks: u64,
    spare: Vec<Vec<u8>>,
    written_bytes: u64,
    failure: Option<io::Error>,
    is_closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    /// Starts the thread.
    pub(crate) fn start(file: File) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("nervure-disk".to_owned());
        let thread = thread.spawn(move || serve(&own, file))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Queues a block. Drops it if an earlier block could not be written.
    pub(crate) fn write(&self, block: Vec<u8>) {
        let mut state = self.shared.state();
        while state.waiting_bytes > 0
            && state.waiting_bytes + block.len() > MAX_WAITING_BYTES
            && state.failure.is_none()
        {
            state = self.shared.wait(state);
        }
        state.accepted_bytes += block.len() as u64;
        state.accepted_blocks += 1;
        if state.failure.is_none() {
            state.waiting_bytes += block.len();
            state.waiting.push_back(block);
            self.shared.changed.notify_all();
        }
    }

    /// Returns an empty block to fill, reusing a written one if possible.
    pub(crate) fn block(&self) -> Vec<u8> {
        self.shared.state().spare.pop().unwrap_or_default()
    }

    /// Number of bytes in the file.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.shared.state().written_bytes
    }

    /// Number of bytes that were passed to `write`: written, queued or dropped.
    pub(crate) fn accepted_bytes(&self) -> u64 {
        self.shared.state().accepted_bytes
    }

    /// Number of blocks that were passed to `write`.
    pub(crate) fn accepted_blocks(&self) -> u64 {
        self.shared.state().accepted_blocks
    }

    /// Number of blocks in the file. They are the first of the accepted ones.
    pub(crate) fn written_blocks(&self) -> u64 {
        self.shared.state().written_blocks
    }

    /// Whether writing a block has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.state().failure.is_some()
    }

    /// The error with which writing a block failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.shared
            .state()
            .failure
            .as_ref()
            .map(ToString::to_string)
    }

    /// Waits until all queued blocks are written or dropped.
    pub(crate) fn drain(&self) {
        let mut state = self.shared.state();
        while state.waiting_bytes > 0 {
            state = self.shared.wait(state);
        }
    }

    /// Waits until all queued blocks are written or dropped. Returns the file, with its cursor at
    /// the end, and the error if one occurred.
    pub(crate) fn close(mut self) -> (File, Option<io::Error>) {
        let file = self.join().expect("the thread is joined once");
        (file, self.shared.state().failure.take())
    }

    fn join(&mut self) -> Option<File> {
        self.shared.state().is_closed = true;
        self.shared.changed.notify_all();
        self.thread.take().map(|thread| {
            thread
                .join()
                .expect("the thread of the disk does not panic")
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.join();
    }
}

fn serve(shared: &Shared, mut file: File) -> File {
    loop {
        let mut state = shared.state();
        let mut block = loop {
            match state.waiting.pop_front() {
                Some(block) => break block,
                None if state.is_closed => return file,
                None => state = shared.wait(state),
            }
        };
        let end = state.written_bytes;
        drop(state);
        let result = append(&mut file, end, &block);
        let mut state = shared.state();
        state.waiting_bytes -= block.len();
        match result {
            Ok(()) => {
                state.written_bytes += block.len() as u64;
                state.written_blocks += 1;
                if state.spare.len() < MAX_SPARE_BLOCKS {
                    block.clear();
                    state.spare.push(block);
                }
            }
            Err(error) => {
                state.failure = Some(error);
                state.waiting.clear();
                state.waiting_bytes = 0;
            }
        }
        shared.changed.notify_all();
    }
}

/// Writes all of the block at the end of the file, or leaves the file as it was.
pub(crate) fn append(file: &mut File, end: u64, block: &[u8]) -> io::Result<()> {
    file.write_all(block).inspect_err(|_| {
        // A partial block would look like damage. If truncating fails too, readers stop at the
        // partial block.
        let _ = file
            .set_len(end)
            .and_then(|()| file.seek(SeekFrom::Start(end)));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_arrive_in_order_and_are_used_again() {
        let mut file = tempfile::tempfile().unwrap();
        let disk = Disk::start(file.try_clone().unwrap()).unwrap();
        let mut expected = Vec::new();
        for number in 0..100_u8 {
            let mut block = disk.block();
            assert!(block.is_empty());
            block.resize(1000 + usize::from(number), number);
            expected.extend_from_slice(&block);
            disk.write(block);
        }
        assert!(disk.close().1.is_none());
        let mut written = Vec::new();
        file.rewind().unwrap();
        io::Read::read_to_end(&mut file, &mut written).unwrap();
        assert!(written == expected);
    }

    #[test]
    fn a_failure_is_kept_and_no_write_blocks_forever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read-only");
        std::fs::write(&path, "").unwrap();
        let disk = Disk::start(File::open(&path).unwrap()).unwrap();
        for _ in 0..10 {
            disk.write(vec![7; MAX_WAITING_BYTES / 4]);
        }
        assert!(disk.close().1.is_some());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
