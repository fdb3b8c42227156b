//! Faults of a system call.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{
        Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_getfd,
        pidfd_open, prlimit,
    },
};
use syscalls::Sysno;

use crate::seccomp::{Answer, Call};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The call fails with this number.
    Errno(i32),
    /// The process cannot get further descriptors during the call: the kernel drops those that a message carries.
    NoDescriptors,
    /// The call reads or writes half of its bytes.
    Short,
    /// The process is killed before the call.
    Kill,
    /// The process is killed before the next call of the same thread.
    KillAfter,
    /// The call is delayed; other threads of the process continue.
    Delay(Duration),
}

impl Action {
    /// Parses the argument of `--action`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(millis) = text.strip_prefix("delay:") {
            let millis = millis
                .parse()
                .map_err(|_| format!("`{millis}` is not a number"))?;
            return Ok(Self::Delay(Duration::from_millis(millis)));
        }
        Ok(match text {
            "no-descriptors" => Self::NoDescriptors,
            "short" => Self::Short,
            "kill" => Self::Kill,
            "kill-after" => Self::KillAfter,
            _ => {
                let number = text
                    .strip_prefix("errno:")
                    .and_then(|number| number.parse().ok());
                Self::Errno(number.ok_or_else(|| format!("`{text}` is no action"))?)
            }
        })
    }
}

/// The rest of an action, which is due before the next call of the thread.
#[derive(Debug)]
pub enum Afterwards {
    Nothing,
    Restore(Rlimit),
    Kill,
    /// Answer the call after this time.
    Delay(Duration),
}

/// Acts on a call. Returns `None` for a call that cannot be cut short: it has one byte, or no data is ready.
pub fn act(action: Action, process: u32, call: &Call) -> io::Result<Option<(Answer, Afterwards)>> {
    Ok(match action {
        Action::Errno(number) => Some((Answer::Fail(number), Afterwards::Nothing)),
        Action::NoDescriptors => {
            let before = limit_descriptors(process)?;
            Some((Answer::Continue, Afterwards::Restore(before)))
        }
        Action::Short => {
            shorten(process, call)?.map(|bytes| (Answer::Return(bytes as i64), Afterwards::Nothing))
        }
        Action::Kill => {
            kill(process)?;
            Some((Answer::Continue, Afterwards::Nothing))
        }
        Action::KillAfter => Some((Answer::Continue, Afterwards::Kill)),
        Action::Delay(time) => Some((Answer::Continue, Afterwards::Delay(time))),
    })
}

/// Completes the rest of an action.
pub fn conclude(process: u32, afterwards: &Afterwards) -> io::Result<()> {
    match afterwards {
        Afterwards::Nothing | Afterwards::Delay(_) => Ok(()),
        Afterwards::Restore(limit) => prlimit(Some(pid(process)?), Resource::Nofile, *limit)
            .map(drop)
            .map_err(Into::into),
        Afterwards::Kill => kill(process),
    }
}

/// The file that a call concerns, for reports.
pub fn object(process: u32, call: &Call) -> String {
    let argument = match Sysno::new(call.number as usize) {
        Some(Sysno::openat) => return path(process, call.arguments[1]).unwrap_or_default(),
        Some(Sysno::mmap) => call.arguments[4],
        _ => call.arguments[0],
    };
    let link = fs::read_link(format!("/proc/{process}/fd/{}", argument as i32));
    link.map(|link| link.display().to_string())
        .unwrap_or_default()
}

fn path(process: u32, address: u64) -> io::Result<String> {
    let mut bytes = [0; 256];
    let read = File::open(format!("/proc/{process}/mem"))?.read_at(&mut bytes, address)?;
    let path = bytes[..read]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    Ok(String::from_utf8_lossy(path).into_owned())
}

fn pid(process: u32) -> io::Result<Pid> {
    Pid::from_raw(process.cast_signed()).ok_or_else(|| io::Error::other("no process"))
}

fn kill(process: u32) -> io::Result<()> {
    Ok(kill_process(pid(process)?, Signal::KILL)?)
}

/// Sets the limit to the lowest free number, which the kernel would use next. Returns the previous limit.
fn limit_descriptors(process: u32) -> io::Result<Rlimit> {
    let mut used: Vec<u64> = fs::read_dir(format!("/proc/{process}/fd"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    used.sort_unstable();
    let lowest_free = used
        .iter()
        .zip(0..)
        .take_while(|(fd, number)| **fd == *number)
        .count() as u64;
    let before = prlimit(
        Some(pid(process)?),
        Resource::Nofile,
        Rlimit {
            current: Some(lowest_free),
            maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
        },
    )?;
    Ok(before)
}

/// Makes the call on behalf of the process, with half of its bytes.
fn shorten(process: u32, call: &Call) -> io::Result<Option<usize>> {
    let [fd, address, bytes, ..] = call.arguments;
    let half = (bytes / 2).min(1 << 16) as usize;
    let number = Sysno::new(call.number as usize);
    if half == 0 {
        return Ok(None);
    }
    let file = borrow(process, fd as i32)?;
    let memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{process}/mem"))?;
    let mut buffer = vec![0; half];
    let flags = if number == Some(Sysno::write) {
        PollFlags::OUT
    } else {
        PollFlags::IN
    };
    if poll(&mut [PollFd::new(&file, flags)], Some(&Timespec::default()))? == 0 {
        return Ok(None);
    }
    match number {
        Some(Sysno::write) => {
            memory.read_exact_at(&mut buffer, address)?;
            match rustix::io::write(&file, &buffer) {
                // A control file that rejects a part of a value.
                Err(rustix::io::Errno::INVAL) => Ok(None),
                written => Ok(Some(written?)),
            }
        }
        Some(Sysno::read) => {
            let read = rustix::io::read(&file, &mut buffer)?;
            memory.write_all_at(&buffer[..read], address)?;
            Ok(Some(read))
        }
        _ => Err(io::Error::other("only `read` and `write` can be cut short")),
    }
}

fn borrow(process: u32, fd: i32) -> io::Result<OwnedFd> {
    let pidfd = pidfd_open(pid(process)?, PidfdFlags::empty())?;
    Ok(pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty())?)
}
