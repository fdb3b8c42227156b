//! System resources that have run out.

use rustix::io::Errno;
use rustix::process::Resource;
use std::io;

/// A system resource that has run out. No peer broke the protocol, and a later call may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// The process has reached its limit of file descriptors.
    #[error(
        "out of file descriptors (limit {limit}: raise it with `ulimit -n`, or `LimitNOFILE=` of a systemd service)"
    )]
    Descriptors {
        /// The soft limit of the process.
        limit: u64,
    },
    /// The system has reached its limit of open files.
    #[error("the system is out of file descriptors (raise the sysctl `fs.file-max`)")]
    SystemDescriptors,
    /// More descriptors of this user are in flight between processes than one process may have
    /// open.
    #[error(
        "too many file descriptors are in flight between processes of this user (limit {limit}: raise it with \
         `ulimit -n`, or `LimitNOFILE=` of a systemd service)"
    )]
    InFlight {
        /// The soft limit of the sending process.
        limit: u64,
    },
    /// Memory or memory mappings have run out.
    #[error(
        "out of memory or memory mappings (see `ulimit -v`, the memory limit of the control group, \
         and the sysctl `vm.max_map_count`)"
    )]
    Memory,
    /// The user, or the control group, may have no further processes. Only the start of a process
    /// fails for it: `EAGAIN` has other meanings elsewhere.
    #[error("out of processes (see `ulimit -u`, and `pids.max` of the control group)")]
    Processes,
}

impl Shortage {
    /// The shortage that an error reports, if any.
    pub fn of(error: &io::Error) -> Option<Self> {
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Self>());
        inner
            .copied()
            .or_else(|| Self::of_errno(Errno::from_io_error(error)?))
    }

    fn of_errno(errno: Errno) -> Option<Self> {
        let limit = || {
            rustix::process::getrlimit(Resource::Nofile)
                .current
                .unwrap_or(u64::MAX)
        };
        match errno {
            Errno::MFILE => Some(Self::Descriptors { limit: limit() }),
            Errno::TOOMANYREFS => Some(Self::InFlight { limit: limit() }),
            Errno::NFILE => Some(Self::SystemDescriptors),
            Errno::NOMEM | Errno::NOBUFS => Some(Self::Memory),
            _ => None,
        }
    }
}

impl From<Shortage> for io::Error {
    fn from(shortage: Shortage) -> Self {
        Self::other(shortage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_recognized_and_names_the_limit_to_raise() {
        let of = |errno: Errno| Shortage::of(&errno.into());
        let shortage = of(Errno::MFILE).unwrap();
        assert_eq!(Shortage::of(&shortage.into()), Some(shortage));
        let limit = rustix::process::getrlimit(Resource::Nofile)
            .current
            .unwrap();
        assert!(
            shortage
                .to_string()
                .contains(&format!("limit {limit}: raise it with `ulimit -n`"))
        );
        assert_eq!(of(Errno::TOOMANYREFS), Some(Shortage::InFlight { limit }));
        assert_eq!(of(Errno::NFILE), Some(Shortage::SystemDescriptors));
        assert_eq!(of(Errno::NOMEM), Some(Shortage::Memory));
        assert_eq!(of(Errno::AGAIN), None);
        assert_eq!(Shortage::of(&io::Error::other("something else")), None);
    }
}
