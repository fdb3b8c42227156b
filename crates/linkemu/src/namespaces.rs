//! Network namespaces for tests of programs on two machines.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
};

/// Two network namespaces with cables between them. They end with their processes.
pub struct Namespaces {
    holders: [Child; 2],
}

impl Namespaces {
    /// `cable0`, `cable1`, .. join the namespaces 0 and 1, which have the addresses `10.77.N.1` and
    /// `10.77.N.2` on cable N. `None` where namespaces cannot be made, which is printed.
    pub fn new(cables: usize) -> Option<Self> {
        let hold = || {
            let mut command = Command::new("unshare");
            command.args([
                "--net",
                "--kill-child",
                "sh",
                "-c",
                "ip link set lo up && echo up && exec sleep 3600",
            ]);
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
        };
        let (Ok(one), Ok(other)) = (hold(), hold()) else {
            eprintln!("SKIPPED: there is no `unshare`");
            return None;
        };
        let mut namespaces = Self {
            holders: [one, other],
        };
        for holder in &mut namespaces.holders {
            let mut line = String::new();
            let stdout = holder.stdout.take().unwrap();
            BufReader::new(stdout).read_line(&mut line).unwrap();
            if line.trim() != "up" {
                eprintln!("SKIPPED: the test needs the rights to make network namespaces");
                return None;
            }
        }
        for number in 0..cables {
            let cable = format!("cable{number}");
            let [one, other] = [0, 1].map(|at| namespaces.pid(at).to_string());
            run(Command::new("ip")
                .args(["link", "add", &cable, "netns", &one, "type", "veth"])
                .args(["peer", "name", &cable, "netns", &other]));
            for at in [0, 1] {
                let address = format!("10.77.{number}.{}/24", at + 1);
                let ip = |arguments: &[&str]| {
                    run(namespaces.command(at, "ip").args(arguments));
                };
                ip(&["addr", "add", &address, "dev", &cable]);
                ip(&["link", "set", &cable, "up"]);
            }
        }
        Some(namespaces)
    }

    /// The process in a namespace.
    pub fn pid(&self, at: usize) -> u32 {
        self.holders[at].id()
    }

    /// A program in a namespace.
    pub fn command(&self, at: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--net", "--target", &self.pid(at).to_string(), "--"])
            .arg(program);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = (holder.kill(), holder.wait());
        }
    }
}

/// Runs a command, which must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
