//! Where and how the kernel runs a thread, and keeps the memory of its process. Between fork and exec the functions that
//! bind and schedule a thread may be called too: they only make system calls.

use nervure_protocol::graph::Scheduling;
use nervure_protocol::nanos::nanos;
use std::io;
use std::mem::{size_of, zeroed};

/// Processors that a thread may run on.
#[derive(Clone, Copy)]
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// The processors with these numbers; `None` if there are none, which is no limit.
    ///
    /// # Errors
    /// A text for people with the wrong number.
    pub fn new(numbers: &[u32]) -> Result<Option<Self>, String> {
        if numbers.is_empty() {
            return Ok(None);
        }
        // SAFETY: all zeros is the empty set.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        for &cpu in numbers {
            if cpu >= libc::CPU_SETSIZE as u32 {
                return Err(format!(
                    "`cpu_affinity` names CPU {cpu}, {} is the highest possible",
                    libc::CPU_SETSIZE - 1
                ));
            }
            // SAFETY: the CPU's number is within the set.
            unsafe { libc::CPU_SET(cpu as usize, &mut set) };
        }
        Ok(Some(Self(set)))
    }

    /// Lets this thread run there alone, and the threads that it starts.
    ///
    /// # Errors
    /// If none of them may be used.
    pub fn bind_this_thread(&self) -> io::Result<()> {
        // SAFETY: the set is valid, and of that size.
        check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.0) })
    }
}

/// Schedules this thread, and the threads that it starts.
///
/// # Errors
/// If it is not permitted.
pub fn schedule_this_thread(scheduling: Scheduling) -> io::Result<()> {
    let (policy, priority) = match scheduling {
        Scheduling::Inherited => return Ok(()),
        // In Linux a niceness is a thread's; 0 is the calling one.
        Scheduling::Other { nice } => {
            return Ok(rustix::process::setpriority_process(None, i32::from(nice))?);
        }
        Scheduling::Fifo { priority } => (libc::SCHED_FIFO, priority),
        Scheduling::RoundRobin { priority } => (libc::SCHED_RR, priority),
        Scheduling::Deadline {
            runtime,
            deadline,
            period,
        } => return schedule_by_deadline([runtime, deadline, period].map(nanos)),
    };
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut parameters: libc::sched_param = unsafe { zeroed() };
    parameters.sched_priority = i32::from(priority);
    // SAFETY: `parameters` is valid.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameters) })
}

fn schedule_by_deadline([runtime, deadline, period]: [u64; 3]) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_DEADLINE as u32,
        // Such a thread may start others only if these are scheduled as usual.
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: runtime,
        sched_deadline: deadline,
        sched_period: period,
    };
    // SAFETY: the attributes have the size that they name; 0 is the calling thread, and there are no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(result as i32)
}

/// The reason for the kernel's refusal to schedule a thread in this way, and a remedy, for people.
pub fn explain_scheduling(scheduling: Scheduling, error: &io::Error) -> String {
    let key = format!("`scheduling: {scheduling}`");
    match (error.raw_os_error(), scheduling) {
        (Some(libc::EPERM), Scheduling::Deadline { .. }) => format!(
            "{key} is not permitted: it needs the capability CAP_SYS_NICE (`sudo setcap cap_sys_nice+ep \"$(command -v nervure)\"`; \
             in a container: --cap-add sys_nice), and a thread that may run on all processors"
        ),
        (Some(libc::EPERM | libc::EACCES), _) => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio);
            let limit = limit
                .maximum
                .map_or_else(|| "none".to_owned(), |limit| limit.to_string());
            format!(
                "{key} is not permitted (RLIMIT_RTPRIO of this user: {limit}): give `nervure` the right by \
                 `sudo setcap cap_sys_nice+ep \"$(command -v nervure)\"`, or raise the limits `rtprio` and `nice` of this user \
                 in /etc/security/limits.conf and log in again; in a container: --cap-add sys_nice"
            )
        }
        (Some(libc::EBUSY), Scheduling::Deadline { .. }) => format!(
            "{key} was refused: the processors are promised to other threads with deadlines; `runtime` over `period` of all \
             of them may be 95 % of the processors (sysctl kernel.sched_rt_runtime_us)"
        ),
        _ => format!("{key} was refused: {error}"),
    }
}

/// Stack in bytes below its caller that [`lock_memory`] touches, so that it is not faulted in later: the stack of the main
/// thread grows as it is used.
const PREFAULTED_STACK_BYTES: usize = 64 << 10;

/// Locks the memory of this process: everything that is mapped is faulted in, and stays; and so is everything that will be
/// mapped.
///
/// # Errors
/// [`NotLocked`] if the limit does not allow it.
pub fn lock_memory() -> Result<(), NotLocked> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Memlock);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        // If it fails, the limit stays as low as it was.
        let _ = setrlimit(Resource::Memlock, raised);
    }
    std::hint::black_box(&mut [0_u8; PREFAULTED_STACK_BYTES]);
    // SAFETY: it changes no memory.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }).map_err(|cause| {
        NotLocked {
            limit: getrlimit(Resource::Memlock).current,
            cause,
        }
    })
}

/// Memory cannot be locked.
#[derive(Debug, thiserror::Error)]
#[error(
    "`memory_lock: true` was refused: {cause} (RLIMIT_MEMLOCK of this user: {}). Add `memlock unlimited` for the user to \
     /etc/security/limits.conf and log in again; in a systemd service `LimitMEMLOCK=infinity`; in a container: \
     --ulimit memlock=-1",
    .limit.map_or_else(|| "none".to_owned(), |bytes| format!("{} KiB", bytes >> 10))
)]
pub struct NotLocked {
    limit: Option<u64>,
    cause: io::Error,
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
