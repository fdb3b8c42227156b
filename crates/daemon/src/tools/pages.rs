//! Counters pages of another machine's nodes, kept equal to them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nervure_protocol::daemon_to_daemon::{LINE_BYTES, Lines, MAX_PAGE_BYTES, changed_lines};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags};

/// The most memory for the pages of one dataflow, in bytes.
const MAX_BYTES: usize = 8 * MAX_PAGE_BYTES;

/// At the machine of the nodes: the pages, and the contents that were sent.
#[derive(Debug, Default)]
pub(super) struct Originals(BTreeMap<u32, (File, Vec<u8>)>);

/// At the machine of the command: copies, which the command has mapped.
#[derive(Debug, Default)]
pub(super) struct Copies(BTreeMap<u32, (File, usize)>);

impl Originals {
    /// Adds the page of a node, and returns its contents.
    pub fn add(&mut self, node: u32, page: OwnedFd) -> io::Result<&[u8]> {
        let page = File::from(page);
        let bytes = usize::try_from(page.metadata()?.len()).unwrap_or(usize::MAX);
        let known: usize = self.0.values().map(|(_, sent)| sent.len()).sum();
        check(bytes, known)?;
        let mut contents = vec![0; bytes];
        page.read_exact_at(&mut contents, 0)?;
        self.0.insert(node, (page, contents));
        Ok(&self.0[&node].1)
    }

    /// A frame with the lines that have changed since the last call, for each page with some.
    pub fn changes(&mut self) -> Vec<Vec<u8>> {
        let changes = self.0.iter_mut().filter_map(|(node, (page, sent))| {
            let mut now = vec![0; sent.len()];
            page.read_exact_at(&mut now, 0).ok()?;
            let frame = changed_lines(*node, sent, &now);
            *sent = now;
            frame
        });
        changes.collect()
    }
}

impl Copies {
    /// Makes a copy of a page, and returns a descriptor that cannot write to it.
    pub fn add(&mut self, node: u32, contents: &[u8]) -> io::Result<OwnedFd> {
        let known: usize = self.0.values().map(|(_, bytes)| bytes).sum();
        check(contents.len(), known)?;
        let page = memfd(contents)?;
        // The size is fixed, as the command requires.
        rustix::fs::fcntl_add_seals(&page, SealFlags::SHRINK | SealFlags::GROW)?;
        let reader = read_only(&page)?;
        self.0.insert(node, (page, contents.len()));
        Ok(reader)
    }

    /// Changes lines of a page. Those of an unknown page, or beyond its end, are ignored.
    pub fn change(&self, node: u32, lines: Lines<'_>) -> io::Result<()> {
        let Some((page, bytes)) = self.0.get(&node) else {
            return Ok(());
        };
        for (number, line) in lines.iter() {
            let at = number as usize * LINE_BYTES;
            if at + line.len() <= *bytes {
                page.write_all_at(line, at as u64)?;
            }
        }
        Ok(())
    }
}

fn check(bytes: usize, known: usize) -> io::Result<()> {
    if bytes > MAX_PAGE_BYTES || bytes + known > MAX_BYTES {
        return Err(io::Error::other(format!(
            "the counters of its nodes have more than {MAX_BYTES} bytes, or those of one node more than {MAX_PAGE_BYTES}"
        )));
    }
    Ok(())
}

/// A memfd with these contents.
pub(super) fn memfd(contents: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("nervure-remote", flags)?);
    file.write_all_at(contents, 0)?;
    Ok(file)
}

fn read_only(file: &File) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    Ok(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::daemon_to_daemon::{Frame, decode_frame};

    #[test]
    fn a_copy_follows_its_original() {
        let (mut originals, mut copies) = (Originals::default(), Copies::default());
        let original = memfd(&[1; 4096]).unwrap();
        let contents = originals
            .add(3, original.try_clone().unwrap().into())
            .unwrap();
        let copy = File::from(copies.add(3, contents).unwrap());
        original.write_all_at(&[9; 8], 4000).unwrap();
        for frame in originals.changes() {
            let Ok(Frame::Lines(node, lines)) = decode_frame(&frame) else {
                panic!("{frame:?}");
            };
            copies.change(node, lines).unwrap();
        }
        let mut bytes = vec![0; 4096];
        copy.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes[4000..4008], bytes[0]), (&[9; 8][..], 1));
        assert!(originals.changes().is_empty());
        assert!(copy.write_all_at(b"x", 0).is_err(), "it is read-only");
        // Lines beyond the end change nothing.
        let beyond = changed_lines(3, &[0; 8192], &[7; 8192]).unwrap();
        let Ok(Frame::Lines(_, lines)) = decode_frame(&beyond) else {
            panic!();
        };
        copies.change(3, lines).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), 4096);
    }
}
