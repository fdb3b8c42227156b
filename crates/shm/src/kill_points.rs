//! Kills its own process after the n-th store to shared memory or control message, in debug builds
//! with the feature `kill-points`. The fault campaign (`make test-faults`) kills at each of these
//! points in turn.
//!
//! The variable `NERVURE_KILL_POINT` is `argument:process:n:path`. It concerns processes whose
//! first argument is `argument` (all for `*`). They number themselves from 0 in the order in which
//! they create the files `path.0`, `path.1`, .. Process number `process` is killed, and its file
//! then holds `killed`. If n is 0 it is not killed, and the file holds the number of points passed.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{
        OnceLock,
        atomic::{self, AtomicBool, Ordering},
    },
};

use rustix::process::{Signal, getpid, kill_process};

/// The point at which this process is to be killed.
struct Plan {
    point: u64,
    passed: atomic::AtomicU64,
    file: File,
}

/// Passes a kill point: call it after a store to shared memory and after a control message.
pub(crate) fn pass() {
    static IS_UNARMED: AtomicBool = AtomicBool::new(false);
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    if IS_UNARMED.load(Ordering::Relaxed) {
        return;
    }
    let Some(plan) = PLAN.get_or_init(plan) else {
        IS_UNARMED.store(true, Ordering::Relaxed);
        return;
    };
    let passed = plan.passed.fetch_add(1, Ordering::Relaxed) + 1;
    if plan.point == 0 {
        let _ = plan.file.write_at(passed.to_string().as_bytes(), 0);
    } else if passed == plan.point {
        let _ = plan.file.write_at(b"killed", 0);
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

fn plan() -> Option<Plan> {
    let variable = std::env::var("NERVURE_KILL_POINT").ok()?;
    let mut parts = variable.splitn(4, ':');
    let (argument, process, point, path) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if argument != "*" && std::env::args().nth(1).as_deref() != Some(argument) {
        return None;
    }
    let process: usize = process.parse().ok()?;
    let made = (0..).map(|number| (number, File::create_new(format!("{path}.{number}"))));
    let (number, file) = made.take(process + 1).find(|(_, file)| file.is_ok())?;
    (number == process).then_some(Plan {
        point: point.parse().ok()?,
        passed: 0.into(),
        file: file.ok()?,
    })
}

/// An atomic of std, each change of which is a kill point.
macro_rules! counted {
    ($name:ident, $value:ty: $($change:ident),*) => {
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) atomic::$name);

        impl $name {
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
                pass();
            }

            $(pub(crate) fn $change(&self, value: $value, order: Ordering) -> $value {
                let before = self.0.$change(value, order);
                pass();
                before
            })*

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let result = self.0.compare_exchange(current, new, success, failure);
                pass();
                result
            }
        }
    };
}

counted!(AtomicU32, u32: fetch_add);
counted!(AtomicU64, u64: swap, fetch_or, fetch_add, fetch_sub);

#[cfg(test)]
impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }
}
