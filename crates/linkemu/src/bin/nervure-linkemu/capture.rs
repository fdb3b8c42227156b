//! Packet captures in the pcap format (draft-ietf-opsawg-pcap), with nanoseconds.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;
const LINKTYPE_RAW: u32 = 101;

/// A capture per host of the packets that it sends and receives.
pub struct Captures {
    files: Vec<BufWriter<File>>,
    snaplen: u32,
    /// The start, since 1970.
    epoch: Duration,
}

impl Captures {
    pub fn create<'a>(
        folder: &Path,
        hosts: impl Iterator<Item = &'a str>,
        snaplen: u32,
        epoch: Duration,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let create = |host| {
            let mut file = BufWriter::with_capacity(
                1 << 20,
                File::create(folder.join(format!("{host}.pcap")))?,
            );
            file.write_all(&MAGIC_NANOSECONDS.to_ne_bytes())?;
            file.write_all(&2_u16.to_ne_bytes())?;
            file.write_all(&4_u16.to_ne_bytes())?;
            file.write_all(&[0; 8])?;
            file.write_all(&snaplen.to_ne_bytes())?;
            file.write_all(&LINKTYPE_RAW.to_ne_bytes())?;
            Ok(file)
        };
        Ok(Self {
            files: hosts.map(create).collect::<io::Result<_>>()?,
            snaplen,
            epoch,
        })
    }

    pub fn write(&mut self, host: usize, at: Duration, packet: &[u8]) -> io::Result<()> {
        let time = self.epoch + at;
        let kept = packet.len().min(self.snaplen as usize);
        let file = &mut self.files[host];
        // Seconds in 32 bits last until 2106.
        file.write_all(&(time.as_secs() as u32).to_ne_bytes())?;
        file.write_all(&time.subsec_nanos().to_ne_bytes())?;
        file.write_all(&(kept as u32).to_ne_bytes())?;
        file.write_all(&(packet.len() as u32).to_ne_bytes())?;
        file.write_all(&packet[..kept])
    }

    pub fn finish(self) -> io::Result<()> {
        self.files.into_iter().try_for_each(|mut file| file.flush())
    }
}
