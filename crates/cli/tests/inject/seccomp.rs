//! Filters that send system calls to a supervisor (seccomp user notification, Linux 5.19).

#![expect(
    unsafe_code,
    reason = "installing a filter and answering its notifications have no safe interface"
)]

use std::{io, mem::size_of};

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// System calls that a filter sends to the supervisor, by number.
pub enum Selection {
    /// These calls, and of `mmap` only mappings of files.
    Only(Vec<u32>),
    /// All calls but these.
    AllBut(Vec<u32>),
}

/// A system call that waits for its answer.
pub struct Call {
    id: u64,
    /// The thread.
    pub thread: u32,
    pub number: u32,
    pub arguments: [u64; 6],
}

/// The answer to a system call.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Make the call.
    Continue,
    /// Do not make it; it fails with this number.
    Fail(i32),
    /// Do not make it; it returns this value.
    Return(i64),
}

/// The end of a filter at which its calls arrive.
pub struct Listener(OwnedFd);

const NUMBER_OFFSET: u32 = 0;
/// The low half of the fifth argument, on a little-endian machine.
const FILE_OF_MMAP_OFFSET: u32 = 16 + 4 * 8;

/// Filters the calls of this thread and of all processes that it starts from now on.
///
/// # Errors
/// If the kernel is older than 5.19, or the thread already has a filter of this kind.
pub fn install(selection: &Selection) -> io::Result<OwnedFd> {
    rustix::thread::set_no_new_privs(true)?;
    let mut program = program(selection);
    let program = libc::sock_fprog {
        len: program.len().try_into().map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: `program` points to `len` instructions, which outlive the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

fn program(selection: &Selection) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let statement = |code: u32, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let skip_if = |k, skip| libc::sock_filter {
        code: JUMP_IF_EQUAL as u16,
        jt: skip,
        jf: 0,
        k,
    };
    let unless_equal = |k, skip| libc::sock_filter {
        code: JUMP_IF_EQUAL as u16,
        jt: 0,
        jf: skip,
        k,
    };
    let end = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let mut program = vec![statement(LOAD, NUMBER_OFFSET)];
    let (numbers, otherwise, listed) = match selection {
        Selection::Only(numbers) => (
            numbers,
            libc::SECCOMP_RET_ALLOW,
            libc::SECCOMP_RET_USER_NOTIF,
        ),
        Selection::AllBut(numbers) => (
            numbers,
            libc::SECCOMP_RET_USER_NOTIF,
            libc::SECCOMP_RET_ALLOW,
        ),
    };
    if matches!(selection, Selection::Only(_)) {
        program.extend([
            unless_equal(libc::SYS_mmap as u32, 3),
            statement(LOAD, FILE_OF_MMAP_OFFSET),
            unless_equal(u32::MAX, 1),
            end(libc::SECCOMP_RET_ALLOW),
            statement(LOAD, NUMBER_OFFSET),
        ]);
    }
    for (index, number) in numbers.iter().enumerate() {
        // Jumps over the rest of the list and over the return for calls that are not in it.
        program.push(skip_if(*number, (numbers.len() - index) as u8));
    }
    program.extend([end(otherwise), end(listed)]);
    program
}

impl Listener {
    pub fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Receives the next call; `None` if its thread has ended meanwhile.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        // SAFETY: all zeros is a valid value of this plain struct, and the kernel expects it.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call) {
            Ok(()) => Ok(Some(Call {
                id: call.id,
                thread: call.pid,
                number: call.data.nr as u32,
                arguments: call.data.args,
            })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Answers a call. It is no error if its thread has ended.
    pub fn answer(&self, call: &Call, answer: Answer) -> io::Result<()> {
        let (val, error, flags) = match answer {
            Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Fail(number) => (0, -number, 0),
            Answer::Return(value) => (value, 0, 0),
        };
        let mut answer = libc::seccomp_notif_resp {
            id: call.id,
            val,
            error,
            flags,
        };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    fn control<T>(&self, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
        const { assert!(size_of::<T>() > 0) };
        // SAFETY: both requests take a pointer to their struct, which the callers pass, and write no further.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, std::ptr::from_mut(argument)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
