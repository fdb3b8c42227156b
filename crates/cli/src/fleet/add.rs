//! `nervure machine add`: lets a machine join over SSH.

use std::{
    io::{self, Write},
    process::{Command, ExitCode, Output, Stdio},
    time::{Duration, Instant},
};

use nervure_coordinator::{Invitation, Terms};
use nervure_daemon::state::alive_key;
use nervure_fleet::Fleet;
use nervure_protocol::domain::Domain;
use nervure_store::Store;
use serde::Deserialize;
use serde_json::json;

use super::arguments::AddArguments;
use crate::{failure::Failure, output};

/// Lifetime of the invitation. It also runs while SSH waits for a password.
const INVITATION_LIFETIME: Duration = Duration::from_secs(600);

/// Time limit until a machine that has joined can be reached over its link.
const REACH: Duration = Duration::from_secs(15);

/// Exit code of `ssh` for errors of its own.
const SSH_FAILED: i32 = 255;

/// Exit code of a shell that does not find a command.
const NOT_FOUND: i32 = 127;

/// What `nervure join --detach --json` writes.
#[derive(Debug, Deserialize)]
struct Joined {
    machine: String,
    daemon: u32,
}

/// Invites a machine, lets it join over SSH, and waits until it can be reached.
pub fn add(fleet: &Fleet, arguments: &AddArguments) -> Result<ExitCode, Failure> {
    let terms = Terms::once(arguments.role, INVITATION_LIFETIME);
    let invitation = fleet.client.invite(terms)?;
    let domain = Domain::of_environment()?;
    let command = remote_command(arguments, domain.name());
    let output = ssh(arguments, &command, &invitation).map_err(|error| ssh_failure(&error))?;
    let joined = joined(arguments, &output)?;
    await_reachable(fleet, &joined.machine)?;
    output::write(&match arguments.json {
        true => format!(
            "{}\n",
            json!({"machine": joined.machine, "role": arguments.role, "daemon": joined.daemon})
        ),
        false => format!(
            "{} has joined as {}, and can be reached\n",
            joined.machine, arguments.role
        ),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The command line for the other machine and any login shell. It does not contain the invitation,
/// because every user of a machine can see the arguments of its processes.
fn remote_command(arguments: &AddArguments, domain: Option<&str>) -> String {
    let mut join = vec![
        quoted(&arguments.program),
        "join --detach --json -".to_owned(),
    ];
    let name = arguments.name.iter();
    join.extend(name.map(|name| format!("--name {}", quoted(name))));
    let labels = arguments.label.iter();
    join.extend(
        labels.map(|(name, text)| format!("--label {}", quoted(&format!("{name}={text}")))),
    );
    join.extend(domain.map(|domain| format!("--domain {}", quoted(domain))));
    // Sessions without a terminal may have a short PATH.
    let script = format!(
        "PATH=\"$PATH:$HOME/.local/bin:$HOME/.cargo/bin\"; command -v {} >/dev/null || exit {NOT_FOUND}; exec {}",
        quoted(&arguments.program),
        join.join(" ")
    );
    format!("sh -c {}", quoted(&script))
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Runs `ssh` with the invitation on stdin. It prompts for passwords on the terminal itself.
fn ssh(arguments: &AddArguments, command: &str, invitation: &Invitation) -> io::Result<Output> {
    let mut ssh = Command::new("ssh")
        .args(&arguments.ssh_options)
        .args(["--", &arguments.host, command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = ssh.stdin.take() {
        // `ssh` may have ended already; its exit code has the reason.
        let _ = writeln!(stdin, "{invitation}");
    }
    ssh.wait_with_output()
}

fn ssh_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::invalid("there is no `ssh` on this machine")
            .hint("`apt install openssh-client` installs it; without it, run `nervure machine invite` here and what it prints on the other machine"),
        _ => Failure::internal("`ssh` cannot be started").because(error),
    }
}

/// Parses the answer of the other machine.
fn joined(arguments: &AddArguments, output: &Output) -> Result<Joined, Failure> {
    let AddArguments { host, program, .. } = arguments;
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let because = |failure: Failure| errors.clone().fold(failure, Failure::because);
    match output.status.code() {
        Some(0) => {}
        Some(SSH_FAILED) => {
            return Err(
                because(Failure::internal(format!("SSH does not reach `{host}`")))
                    .hint(format!("`ssh {host} true` has to work first")),
            );
        }
        Some(NOT_FOUND) => {
            return Err(because(Failure::invalid(format!(
                "`{host}` has no command `{program}`"
            )))
            .hint(format!(
                "install it there, with the package of `make packages`: `scp nervure_*.deb {host}:` and `ssh -t {host} sudo apt install ./nervure_*.deb`; or name the command with `--program PATH`"
            )));
        }
        Some(code) => {
            return Err(because(Failure::internal(format!(
                "`{host}` has not joined: `{program} join` has ended with exit code {code}"
            ))));
        }
        None => {
            return Err(because(Failure::internal(format!(
                "`ssh` was ended by a signal: {}",
                output.status
            ))));
        }
    }
    errors.clone().for_each(|line| note!("{host}: {line}"));
    // Startup files of the shell may print before the answer.
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().next_back().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| {
        Failure::internal(format!("`{host}` has answered with {last:?}"))
            .hint("is the same version of Nervure there?")
    })
}

/// Waits until the daemon of a machine has its link to the coordinator's machine.
fn await_reachable(fleet: &Fleet, machine: &str) -> Result<(), Failure> {
    let until = Instant::now() + REACH;
    let notes = alive_key(machine, "");
    loop {
        let listing = fleet.client.list(&notes)?;
        if !listing.entries.is_empty() {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::internal(format!(
                "{machine} has joined, but its link has not come up within {} s",
                REACH.as_secs()
            ))
            .hint(
                "`nervure machine list` shows when it does; a firewall may drop its packets (UDP)",
            ));
        }
        fleet.client.watch(&notes, listing.revision, left)?;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        add: AddArguments,
    }

    fn parse(words: &[&str]) -> Result<AddArguments, String> {
        let words = ["add"].iter().chain(words);
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.add)
    }

    #[test]
    fn the_command_line_has_each_word_as_it_was_given() {
        let words = [
            "pi@robot",
            "--name",
            "r07",
            "--label",
            "room=Bob's lab; reboot",
        ];
        let mut arguments = parse(&words).unwrap();
        // A command that prints its arguments.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("print words");
        fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\"").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        arguments.program = program.to_str().unwrap().to_owned();
        let command = remote_command(&arguments, Some("red"));
        let printed = Command::new("sh").args(["-c", &command]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&printed.stdout),
            "<join><--detach><--json><-><--name><r07><--label><room=Bob's lab; reboot><--domain><red>"
        );
        arguments.program = "a command that is not there".to_owned();
        let command = remote_command(&arguments, None);
        let status = Command::new("sh").args(["-c", &command]).status().unwrap();
        assert_eq!(status.code(), Some(NOT_FOUND));
    }

    #[test]
    fn an_option_of_ssh_is_no_host() {
        for host in ["-oProxyCommand=reboot", "", "two words"] {
            assert!(
                parse(&["--", host]).is_err() || parse(&[host]).is_err(),
                "{host}"
            );
        }
        let arguments = parse(&["robot", "--", "-p", "2222"]).unwrap();
        assert_eq!(arguments.ssh_options, ["-p", "2222"]);
    }
}
