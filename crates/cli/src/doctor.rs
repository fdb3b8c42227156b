//! `nervure doctor`: checks this machine for dataflows in general, or for one dataflow file.

mod facts;
pub mod project;

use std::{fmt::Write, process::ExitCode};

use serde::Serialize;

use crate::{
    failure::{self, Failure},
    output,
};
use facts::Facts;

/// Open files that the keeper of a dataflow with some hundred edges needs.
const FILES_WANTED: u64 = 4096;
/// Socket buffer in bytes that absorbs a gigabit link while its reader waits for a processor.
const SOCKET_BUFFER_WANTED: u64 = 8 << 20;
/// Free bytes below which log files and recordings will soon fail.
const DISK_WANTED: u64 = 1 << 30;
/// The oldest kernel with all features that Nervure uses.
const KERNEL_WANTED: (u32, u32) = (5, 10);

/// Prints the findings. The exit code is 1 if dataflows cannot run here.
pub fn doctor(json: bool) -> Result<ExitCode, Failure> {
    let findings = diagnose(&Facts::gather());
    let text = if json {
        let text = serde_json::to_string(&findings);
        text.map_err(|error| Failure::internal("the findings cannot be written").because(error))?
            + "\n"
    } else {
        render(&findings)
    };
    output::write(&text)?;
    let can_run = findings
        .iter()
        .all(|finding| finding.state != State::Failed);
    Ok(if can_run {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(failure::INTERNAL)
    })
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// No limitation.
    Good,
    /// Dataflows run, but a feature that some of them need is slow or missing.
    Limited,
    /// Dataflows do not run.
    Failed,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    found: String,
    /// The fix, unless the state is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self {
            what,
            state: State::Good,
            found: found.into(),
            remedy: None,
        }
    }

    fn limited(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what,
            state: State::Limited,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn failed(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what,
            state: State::Failed,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

fn render(findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.what.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for Finding {
        what,
        state,
        found,
        remedy,
    } in findings
    {
        let state = match state {
            State::Good => "ok  ",
            State::Limited => "note",
            State::Failed => "FAIL",
        };
        let _ = writeln!(text, "{state}  {what:width$}  {found}");
        for line in remedy.iter().flat_map(|remedy| remedy.lines()) {
            let _ = writeln!(text, "      {:width$}  -> {line}", "");
        }
    }
    let any = |state| findings.iter().any(|finding| finding.state == state);
    let summary = match (any(State::Failed), any(State::Limited)) {
        (true, _) => "Dataflows do not run here.",
        (false, true) => {
            "Dataflows run here. A note matters only to dataflows that need the feature that it names."
        }
        (false, false) => "Everything is in order.",
    };
    let _ = writeln!(text, "\n{summary}");
    text
}

/// Derives the findings from the facts.
fn diagnose(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![
        kernel(facts),
        sealed_memory(facts),
        open_files(facts),
        memory(facts),
    ];
    findings.extend([real_time(facts), locked_memory(facts)]);
    findings.extend([governor(facts), clock(facts)].into_iter().flatten());
    findings.extend([
        logs(facts),
        python(facts),
        attach(facts),
        control_groups(facts),
    ]);
    findings.extend([socket_buffers(facts), emulated_link(facts)]);
    findings.extend(fleet(facts));
    findings
}

fn fleet(facts: &Facts) -> Option<Finding> {
    const WHAT: &str = "fleet";
    Some(match facts.daemon.as_ref()? {
        Ok(Some(process)) => Finding::good(WHAT, format!("its daemon runs (process {process})")),
        Ok(None) => Finding::limited(
            WHAT,
            "this machine belongs to a fleet, and its daemon does not run",
            "`nervure up` starts it on the coordinator's machine, `nervure join` on the others",
        ),
        Err(error) => Finding::limited(
            WHAT,
            error,
            "NERVURE_STATE names the folder of the state; the default is ~/.local/state/nervure",
        ),
    })
}

fn kernel(facts: &Facts) -> Finding {
    const WHAT: &str = "kernel";
    let mut numbers = facts.kernel.split(['.', '-']).map(str::parse::<u32>);
    let version = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => {
            return Finding::limited(
                WHAT,
                &facts.kernel,
                "cannot parse this version; Linux 5.10 or newer is needed",
            );
        }
    };
    if version < KERNEL_WANTED {
        return Finding::failed(WHAT, &facts.kernel, "install Linux 5.10 or newer");
    }
    Finding::good(WHAT, &facts.kernel)
}

fn sealed_memory(facts: &Facts) -> Finding {
    const WHAT: &str = "shared memory";
    match &facts.sealed_memory {
        Ok(()) => Finding::good(WHAT, "sealed memfds"),
        Err(error) => Finding::failed(
            WHAT,
            format!("memfd_create with seals: {error}"),
            "a seccomp filter or an old kernel refuses the system call; in a container: --security-opt seccomp=unconfined",
        ),
    }
}

fn open_files(facts: &Facts) -> Finding {
    const WHAT: &str = "open files";
    match facts.open_files {
        None => Finding::good(WHAT, "no limit"),
        Some(limit) if limit >= FILES_WANTED => {
            Finding::good(WHAT, format!("at most {limit} per process"))
        }
        Some(limit) => Finding::limited(
            WHAT,
            format!("at most {limit} per process"),
            format!(
                "large dataflows need more: raise the limit with `ulimit -Hn {FILES_WANTED}`, or `nofile` in /etc/security/limits.conf"
            ),
        ),
    }
}

fn memory(facts: &Facts) -> Finding {
    const WHAT: &str = "memory";
    let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let available = gigabytes(facts.available_memory_bytes);
    match facts
        .memory_limit_bytes
        .filter(|&limit| limit < facts.available_memory_bytes)
    {
        Some(limit) => Finding::limited(
            WHAT,
            format!(
                "{} for this control group, {available} available on the machine",
                gigabytes(limit)
            ),
            "samples count against this limit: raise it (docker run --memory, MemoryMax= of systemd), or set \
             `shared_memory` of the nodes",
        ),
        None => Finding::good(WHAT, format!("{available} available")),
    }
}

fn real_time(facts: &Facts) -> Finding {
    const WHAT: &str = "real-time";
    let preemption = if facts.is_real_time_kernel {
        ", real-time kernel"
    } else {
        ""
    };
    match facts.real_time_priority {
        None => Finding::good(WHAT, format!("any priority{preemption}")),
        Some(0) => Finding::limited(
            WHAT,
            "`scheduling: {policy: fifo, ..}` is refused",
            "add `rtprio 99` for the user to /etc/security/limits.conf, then log in again; in a systemd service \
             `LimitRTPRIO=99`; in a container: --ulimit rtprio=99 --cap-add sys_nice. `policy: deadline` needs the \
             capability in any case: `sudo setcap cap_sys_nice+ep \"$(command -v nervure)\"`",
        ),
        Some(limit) => Finding::good(
            WHAT,
            format!("priorities up to {limit}{preemption}; `policy: deadline` needs CAP_SYS_NICE"),
        ),
    }
}

fn locked_memory(facts: &Facts) -> Finding {
    const WHAT: &str = "locked memory";
    match facts.locked_memory_bytes {
        Some(limit) if limit < 1 << 30 => Finding::limited(
            WHAT,
            format!(
                "at most {} KiB: `memory_lock: true` is refused",
                limit >> 10
            ),
            "add `memlock unlimited` for the user to /etc/security/limits.conf, then log in again; in a systemd \
             service `LimitMEMLOCK=infinity`; in a container: --ulimit memlock=-1",
        ),
        _ => Finding::good(WHAT, "at least 1 GiB"),
    }
}

fn governor(facts: &Facts) -> Option<Finding> {
    const WHAT: &str = "processor speed";
    let governor = facts.governor.as_deref()?;
    Some(match governor {
        "performance" => Finding::good(WHAT, "governor performance"),
        other => Finding::limited(
            WHAT,
            format!("governor {other}"),
            "a slow clock and deep sleep states add to every latency: \
             `sudo cpupower frequency-set -g performance`",
        ),
    })
}

fn clock(facts: &Facts) -> Option<Finding> {
    const WHAT: &str = "clock";
    let clock = facts.clock_source.as_deref()?;
    let is_slow = ["hpet", "acpi_pm", "jiffies"].contains(&clock);
    Some(if is_slow {
        Finding::limited(
            WHAT,
            format!("{clock}: each reading is a system call"),
            "`dmesg | grep -i tsc` shows why the processor's counter is not used; boot with `tsc=reliable` if the counter is reliable",
        )
    } else {
        Finding::good(WHAT, clock)
    })
}

fn logs(facts: &Facts) -> Finding {
    const WHAT: &str = "log files";
    match &facts.logs {
        Err(error) => Finding::failed(WHAT, error, "set NERVURE_LOG_DIR to a writable folder"),
        Ok((folder, free)) if *free < DISK_WANTED => Finding::limited(
            WHAT,
            format!("{folder}, {} MB free", free / 1_000_000),
            "free some space, or set NERVURE_LOG_DIR to a folder on another disk",
        ),
        Ok((folder, free)) => {
            Finding::good(WHAT, format!("{folder}, {:.0} GB free", *free as f64 / 1e9))
        }
    }
}

fn python(facts: &Facts) -> Finding {
    const WHAT: &str = "Python nodes";
    match &facts.python {
        Ok(version) if version == env!("CARGO_PKG_VERSION") => {
            Finding::good(WHAT, format!("module nervure {version}"))
        }
        Ok(version) => Finding::limited(
            WHAT,
            format!(
                "module nervure {version}, the command is {}",
                env!("CARGO_PKG_VERSION")
            ),
            "install the module of the same version into this environment",
        ),
        Err(why) => Finding::limited(
            WHAT,
            why,
            "activate the environment with the module (`source .venv/bin/activate`), or install the module in this one",
        ),
    }
}

fn control_groups(facts: &Facts) -> Finding {
    const WHAT: &str = "control groups";
    match &facts.control_groups {
        Ok(()) => Finding::good(WHAT, "one for each node"),
        Err(why) => Finding::limited(
            WHAT,
            format!("none: {why}"),
            "of the daemons that a node leaves, those that change their environment outlive it: in a systemd service \
             `Delegate=yes`, in a shell `systemd-run --user --scope -p Delegate=yes nervure run ..`",
        ),
    }
}

fn attach(facts: &Facts) -> Finding {
    const WHAT: &str = "debuggers";
    match facts.ptrace_scope {
        None | Some(0) => Finding::good(WHAT, "may attach to running nodes"),
        Some(_) if facts.is_root => Finding::good(WHAT, "may attach to running nodes, as root"),
        Some(_) => Finding::limited(
            WHAT,
            "gdb and py-spy cannot attach to running nodes",
            "`sudo sysctl kernel.yama.ptrace_scope=0`, or run them with sudo",
        ),
    }
}

fn socket_buffers(facts: &Facts) -> Finding {
    const WHAT: &str = "link to other hosts";
    match facts.receive_buffer_bytes {
        Some(bytes) if bytes < SOCKET_BUFFER_WANTED => Finding::limited(
            WHAT,
            format!("socket buffers of at most {} KiB", bytes >> 10),
            format!(
                "packets are lost on this host above some hundred Mbit/s: \
                 `sudo sysctl net.core.rmem_max={SOCKET_BUFFER_WANTED} net.core.wmem_max={SOCKET_BUFFER_WANTED}`"
            ),
        ),
        _ => Finding::good(WHAT, "socket buffers are large enough"),
    }
}

fn emulated_link(facts: &Facts) -> Finding {
    const WHAT: &str = "emulated link";
    match (facts.has_tun, facts.is_root) {
        (true, true) => Finding::good(WHAT, "/dev/net/tun and network namespaces"),
        (false, _) => Finding::limited(
            WHAT,
            "there is no /dev/net/tun",
            "`sudo modprobe tun`; in a container: --device /dev/net/tun --cap-add net_admin",
        ),
        (true, false) => Finding::limited(WHAT, "needs root", "run `nervure-linkemu` with sudo"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            kernel: "6.8.0-45-generic".to_owned(),
            sealed_memory: Ok(()),
            open_files: Some(1 << 20),
            available_memory_bytes: 16_000_000_000,
            memory_limit_bytes: None,
            real_time_priority: Some(99),
            is_real_time_kernel: true,
            locked_memory_bytes: None,
            governor: Some("performance".to_owned()),
            clock_source: Some("tsc".to_owned()),
            logs: Ok((
                "/home/robot/.local/state/nervure".to_owned(),
                50_000_000_000,
            )),
            python: Ok(env!("CARGO_PKG_VERSION").to_owned()),
            ptrace_scope: Some(0),
            control_groups: Ok(()),
            is_root: true,
            receive_buffer_bytes: Some(16 << 20),
            has_tun: true,
            daemon: None,
        }
    }

    #[test]
    fn a_machine_of_a_fleet() {
        let text = |daemon| {
            let findings = diagnose(&Facts {
                daemon: Some(daemon),
                ..good()
            });
            let finding = findings.into_iter().find(|finding| finding.what == "fleet");
            render(&[finding.unwrap()])
        };
        insta::assert_snapshot!(text(Ok(Some(12))), @r"
        ok    fleet  its daemon runs (process 12)

        Everything is in order.
        ");
        insta::assert_snapshot!(text(Ok(None)), @r"
        note  fleet  this machine belongs to a fleet, and its daemon does not run
                     -> `nervure up` starts it on the coordinator's machine, `nervure join` on the others

        Dataflows run here. A note matters only to dataflows that need the feature that it names.
        ");
    }

    #[test]
    fn a_good_machine() {
        insta::assert_snapshot!(render(&diagnose(&good())));
    }

    #[test]
    fn a_machine_with_every_limit() {
        let facts = Facts {
            open_files: Some(1024),
            memory_limit_bytes: Some(2_000_000_000),
            real_time_priority: Some(0),
            governor: Some("powersave".to_owned()),
            clock_source: Some("hpet".to_owned()),
            logs: Ok(("/var/log/robot".to_owned(), 20_000_000)),
            python: Err("/usr/bin/python3 has no module nervure".to_owned()),
            ptrace_scope: Some(1),
            control_groups: Err(
                "/sys/fs/cgroup/user.slice/nervure-1-2: Permission denied".to_owned()
            ),
            is_root: false,
            receive_buffer_bytes: Some(212_992),
            ..good()
        };
        insta::assert_snapshot!(render(&diagnose(&facts)));
        let locked = Facts {
            locked_memory_bytes: Some(8 << 20),
            has_tun: false,
            ..good()
        };
        let limited = diagnose(&locked)
            .into_iter()
            .filter(|finding| finding.state == State::Limited);
        assert_eq!(
            limited.map(|finding| finding.what).collect::<Vec<_>>(),
            ["locked memory", "emulated link"]
        );
    }

    #[test]
    fn a_machine_on_which_nothing_runs() {
        let facts = Facts {
            kernel: "4.19.0-26-amd64".to_owned(),
            sealed_memory: Err("Function not implemented (os error 38)".to_owned()),
            logs: Err(
                "`/tmp/nervure-1000` is not a folder that only this user can write, and is not used for logs"
                    .to_owned(),
            ),
            ..good()
        };
        insta::assert_snapshot!(render(&diagnose(&facts)));
        assert_eq!(
            kernel(&Facts {
                kernel: "Plan 9".to_owned(),
                ..good()
            })
            .state,
            State::Limited
        );
    }
}
