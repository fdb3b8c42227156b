//! Services of systemd.

use std::{fmt::Write, path::Path};

use clap::Args;

use super::exported::{Exported, Manifest, domain_variable};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct SystemdArguments {
    #[command(flatten)]
    pub(super) exported: Exported,
    /// Run as this user of the machine. Default: the calling user.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// Restart, signals and limits of all services. The guide `start-at-boot` has the reasons.
const COMMON: &str = "\
RestartSec=2
# Exit code 2 means that the file or the command line is wrong; a restart does not help.
RestartPreventExitStatus=2
# Each node gets a cgroup of its own.
Delegate=yes
# Every edge and every block of memory in use takes descriptors.
LimitNOFILE=65536
# For nodes with real-time priority and locked memory.
LimitRTPRIO=95
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
";

/// The services of a dataflow, or of the daemons of its machines.
pub fn export(arguments: &SystemdArguments) -> Result<Vec<Manifest>, Failure> {
    let exported = &arguments.exported;
    let dataflow = exported.read()?;
    let user = match &arguments.user {
        Some(user) => user.clone(),
        None => own_user()?,
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if user.is_empty() || user.starts_with('-') || !user.chars().all(is_name) {
        return Err(Failure::invalid(format!("`{user}` is no name of a user")));
    }
    let program = std::env::current_exe().map_err(|error| {
        Failure::internal("the path of this program is not known").because(error)
    })?;
    if !dataflow.machines.is_empty() {
        exported.refuse_overrides()?;
        return ["join", "up"]
            .into_iter()
            .map(|command| daemon(&user, &program, command))
            .collect();
    }
    let directory = exported.file.canonicalize().ok();
    let directory = directory.as_ref().and_then(|file| file.parent());
    let directory = directory.unwrap_or(&dataflow.directory).to_path_buf();
    let name = &dataflow.name;
    let mut text = head(&format!("Dataflow {name}"), &user, &program)?;
    let line = |text: &mut String, line: String| {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{line}");
    };
    line(
        &mut text,
        format!("WorkingDirectory={}", specifiers(&path(&directory)?)),
    );
    line(
        &mut text,
        format!("# Log files of the nodes: /var/log/{name}."),
    );
    line(&mut text, format!("LogsDirectory={name}"));
    line(
        &mut text,
        format!("Environment=NERVURE_LOG_DIR=/var/log/{name}"),
    );
    line(&mut text, command(&program, &exported.run()?)?);
    text.push_str(
        "# The first signal goes to `run` alone, which stops the nodes; remaining processes are killed after the timeout.\n\
         KillMode=mixed\n\
         TimeoutStopSec=30\n\
         Restart=on-failure\n",
    );
    text.push_str(COMMON);
    Ok(vec![Manifest {
        name: format!("{name}.service"),
        text,
    }])
}

/// The service of a daemon, and of the coordinator for `up`. Its end ends no dataflow.
fn daemon(user: &str, program: &Path, subcommand: &str) -> Result<Manifest, Failure> {
    let (name, description) = match subcommand {
        "up" => ("nervure-coordinator", "Coordinator and daemon of Nervure"),
        _ => ("nervure", "Daemon of Nervure"),
    };
    let mut text = head(description, user, program)?;
    text.push_str(&command(program, &[subcommand.to_owned()])?);
    text.push_str(
        "\n# Keepers and nodes go on when the daemon ends; `nervure stop` stops them.\n\
         KillMode=process\n\
         Restart=always\n",
    );
    text.push_str(COMMON);
    Ok(Manifest {
        name: format!("{name}.service"),
        text,
    })
}

/// The text up to the environment of the service.
fn head(description: &str, user: &str, program: &Path) -> Result<String, Failure> {
    let programs = program.parent().unwrap_or(Path::new("/usr/bin"));
    let mut text = format!(
        "[Unit]\n\
         Description={description}\n\
         After=network.target\n\
         # No limit: by default systemd gives up after five starts, for example with a broken camera.\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=exec\n\
         User={user}\n\
         # Nodes run with the first Python in PATH.\n\
         {}\n",
        variable(
            "PATH",
            &format!("{}:/usr/local/bin:/usr/bin:/bin", path(programs)?)
        )
    );
    if let Some((name, value)) = domain_variable() {
        text.push_str(&variable(name, &value));
        text.push('\n');
    }
    Ok(text)
}

fn variable(name: &str, value: &str) -> String {
    format!("Environment={}", quoted(&format!("{name}={value}")))
}

/// The line that starts the program. `$` begins a variable in it, as `%` a specifier.
fn command(program: &Path, arguments: &[String]) -> Result<String, Failure> {
    let mut line = format!("ExecStart={}", quoted(&path(program)?));
    for argument in arguments {
        if argument.contains(char::is_control) {
            let text = format!("{argument:?} has control characters, which no service can have");
            return Err(Failure::invalid(text));
        }
        line.push(' ');
        line.push_str(&quoted(&argument.replace('$', "$$")));
    }
    Ok(line)
}

/// A path as text.
fn path(path: &Path) -> Result<String, Failure> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => Err(Failure::invalid(format!(
            "{path:?} is no text without control characters, as a service needs it"
        ))),
    }
}

/// A word of a line, in quotes if it needs some.
fn quoted(text: &str) -> String {
    let text = specifiers(text);
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%$".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// The text without specifiers, which begin with `%`.
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// The name of the calling user.
fn own_user() -> Result<String, Failure> {
    let id = rustix::process::geteuid().as_raw();
    let names = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = names.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    own.ok_or_else(|| {
        Failure::invalid(format!("user {id} has no name in /etc/passwd"))
            .hint("name the user of the service by `--user NAME`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_meaning_for_systemd() {
        assert_eq!(quoted("/opt/robot/bin/nervure"), "/opt/robot/bin/nervure");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted(r#"say "50 %"\"#), r#""say \"50 %%\"\\""#);
        assert_eq!(quoted(""), "\"\"");
        let line = command("/bin/sh".as_ref(), &["cost=$5; x".to_owned()]).unwrap();
        assert_eq!(line, "ExecStart=/bin/sh \"cost=$$5; x\"");
        assert!(command("/bin/sh".as_ref(), &["a\nb".to_owned()]).is_err());
        assert!(path("/srv/a\nUser=root".as_ref()).is_err());
    }
}
