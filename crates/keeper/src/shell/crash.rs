//! The place of a crash, as far as the kernel reports it.

use std::{fs, io::Read, os::unix::fs::OpenOptionsExt};

use rustix::process::Pid;

use crate::machine::End;

/// Describes the fault that has killed a process, and how to find its place. `None` for other ends.
pub fn reason(end: End, pid: Pid, node: &str) -> Option<String> {
    let End::Signal(libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE) = end else {
        return None;
    };
    let pid = pid.as_raw_pid();
    let library = kernel_log().and_then(|log| faulting_file(&log, pid));
    let library = library.map(|file| format!(" in `{file}`"));
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let next = match pattern.contains("systemd-coredump") {
        true => format!("`coredumpctl gdb {pid}` shows the place"),
        false => format!("`nervure attach {node} -- gdb --args {{}}` runs it in a debugger"),
    };
    Some(format!("{end}{}; {next}", library.unwrap_or_default()))
}

/// The messages of the kernel, if this user may read them.
fn kernel_log() -> Option<String> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut messages = options.open("/dev/kmsg").ok()?;
    let (mut log, mut record) = (String::new(), [0; 8192]);
    loop {
        match messages.read(&mut record) {
            Ok(0) => return Some(log),
            Ok(bytes) => log.push_str(&String::from_utf8_lossy(&record[..bytes])),
            // Records were overwritten before they were read.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => return Some(log),
        }
    }
}

/// The file in which a process faulted:
/// `python[4711]: segfault at 0 ip 00007f.. sp 00007f.. error 4 in libfoo.so[7f..+1000]`.
fn faulting_file(log: &str, pid: i32) -> Option<String> {
    let process = format!("[{pid}]: ");
    let mut lines = log.lines().rev();
    let fault = lines.find_map(|line| line.split_once(&process))?.1;
    let file = fault.rsplit_once(" in ")?.1.split_once('[')?.0;
    Some(file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
6,1,10,-;python[4711]: segfault at 0 ip 00007f01 sp 00007f02 error 4 in old.so[7f01+1000]
6,2,20,-;traps: control[4712] trap invalid opcode ip:55 sp:7f error:0 in control[55+1000]
6,3,30,-;python[4711]: segfault at 0 ip 00007f01 sp 00007f02 error 4 in libcamera.so.2[7f01+1000] likely on CPU 1
6,4,40,-;python[4713]: segfault at 0 ip 0000000000000000 sp 00007f02 error 14
";

    #[test]
    fn the_file_of_the_last_fault_of_a_process_is_found() {
        assert_eq!(faulting_file(LOG, 4711).as_deref(), Some("libcamera.so.2"));
        assert_eq!(faulting_file(LOG, 4713), None);
        assert_eq!(faulting_file(LOG, 4714), None);
    }

    #[test]
    fn only_faults_have_a_place() {
        let pid = rustix::process::getpid();
        assert_eq!(reason(End::Code(1), pid, "camera"), None);
        assert_eq!(reason(End::Signal(libc::SIGKILL), pid, "camera"), None);
        let reason = reason(End::Signal(libc::SIGSEGV), pid, "camera").unwrap();
        assert!(
            reason.starts_with("killed by SIGSEGV (invalid memory access)"),
            "{reason}"
        );
        assert!(reason.contains("gdb"), "{reason}");
    }
}
