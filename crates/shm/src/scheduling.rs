//! Where and how the kernel runs a thread. Between fork and exec these functions may be called too:
//! they only make system calls.

use nervure_protocol::graph::Scheduling;
use std::io;
use std::mem::{size_of, zeroed};

/// Processors that a thread may run on.
#[derive(Clone, Copy)]
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// The processors with these numbers; `None` if there are none, which is no limit.
    ///
    /// # Errors
    /// What is wrong with a number, for people.
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
    };
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut parameters: libc::sched_param = unsafe { zeroed() };
    parameters.sched_priority = i32::from(priority);
    // SAFETY: `parameters` is valid.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameters) })
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
