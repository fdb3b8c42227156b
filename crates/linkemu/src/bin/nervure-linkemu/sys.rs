//! The system calls that need `unsafe`.

#![expect(
    unsafe_code,
    reason = "namespaces, TUN devices and real-time scheduling have no safe interface"
)]

use std::ffi::{c_int, c_short};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::thread::UnshareFlags;

const IFF_TUN: c_short = 0x0001;
const IFF_NO_PI: c_short = 0x1000;

/// `struct ifreq`, as `TUNSETIFF` reads it: 40 bytes on 64-bit Linux.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: c_short,
    rest: [u8; 22],
}

/// Puts this process into new namespaces. It must be the only thread.
pub fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: only flags that make namespaces are given, none of which touches memory or closes
    // descriptors (`CLONE_FILES` alone does, and is not among them).
    unsafe { rustix::thread::unshare_unsafe(namespaces) }.map_err(Into::into)
}

/// Makes a TUN device in the present network namespace. It vanishes with the last descriptor.
pub fn open_tun(name: &str) -> io::Result<File> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open("/dev/net/tun")?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI,
        rest: [0; 22],
    };
    // A byte stays zero: the name is text that ends with one.
    let length = name.len().min(request.name.len() - 1);
    request.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    const TUNSETIFF: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<c_int>(b'T', 202);
    // SAFETY: `TUNSETIFF` reads a `struct ifreq`, whose layout `InterfaceRequest` has, and keeps no
    // reference to it.
    unsafe {
        let set = rustix::ioctl::Setter::<TUNSETIFF, InterfaceRequest>::new(request);
        rustix::ioctl::ioctl(&tun, set)?;
    }
    Ok(tun)
}

/// Lets this thread run before all others that are not real-time. Child processes do not inherit
/// it.
pub fn become_real_time() -> io::Result<()> {
    // Above the default (0) and below the kernel's own threads (50).
    let parameters = libc::sched_param { sched_priority: 10 };
    // SAFETY: the call reads `parameters`, which has the type it expects, and keeps no reference to
    // it.
    match unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
