//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use nervure_linkemu::ScenarioArguments;

/// Runs programs in network namespaces with a bad wireless link between them.
///
/// The same seed loses the same packets. Everything happens inside new namespaces: nothing outside
/// is changed, and nothing is left behind, even if a process is killed.
#[derive(Debug, Parser)]
#[command(name = "nervure-linkemu", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    all commands ended with 0, or were ended by --until, --stop-after or Ctrl-C
  1    the emulator failed, or lacks rights
  2    the command line or a scenario file is wrong
  3    a command failed
  130  a second Ctrl-C ended everything at once";

const HELP: &str = "\
Each command is a host: a network namespace with the interface `link0`, with shared memory, process list and host name
of its own. Hosts reach each other by name (`a`, `b`, .. or those of --hosts) at 10.77.0.1, 10.77.0.2, ..; a command
also finds LINKEMU_HOST, LINKEMU_ADDRESS and LINKEMU_PEER (the address of the first other host) in its environment.
Rights: root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or user namespaces and a /dev/net/tun that everyone may open.

Examples:
  nervure-linkemu run --rate 54mbit --loss 20% --delay 1ms --queue 100ms -- python3 receive.py --- python3 send.py
  nervure-linkemu run --rate 300mbit --outage 10s:2s --until b --live -- iperf3 -s --- iperf3 -c a -t 20
  nervure-linkemu run --scenario drive.toml --json - --pcap capture/ -- ./robot --- ./base

A scenario file (TOML; every key is optional):
  seed = 7
  duplex = \"half\"              # or \"full\"
  hosts = [\"robot\", \"base\"]
  repeat = \"60s\"               # repeat after this time
  [link]                       # what every host sends: the options of this command, such as
  rate = \"54mbit\"
  loss = \"20%\"
  loss-at = \"air\"              # or \"ingress\": before the queue
  [from.base]                  # what differs for one host
  rate = \"300mbit\"
  [[trace]]                    # CSV: seconds,rate_mbit,loss_percent,delay_ms
  file = \"drive.csv\"
  from = \"robot\"
  [[change]]
  at = \"10s\"
  lasting = \"2s\"               # without it: from then on
  from = \"robot\"               # without it: everyone
  link = { outage = \"lose\" }   # or \"hold\": packets wait

Exit codes:
  0    all commands ended with 0, or were ended by --until, --stop-after or Ctrl-C
  1    the emulator failed, or lacks rights
  2    the command line or a scenario file is wrong
  3    a command failed
  130  a second Ctrl-C ended everything at once";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run commands with a link between them.
    #[command(after_help = HELP)]
    Run(Box<RunArguments>),
    /// Started by `run`.
    #[command(name = "__namespaces", hide = true)]
    Namespaces,
    /// Started by `__namespaces`.
    #[command(name = "__host", hide = true)]
    Host,
}

#[derive(Args, Debug)]
pub struct RunArguments {
    #[command(flatten)]
    pub scenario: ScenarioArguments,
    /// Give the hosts' interfaces this MTU; unlike --mtu, the hosts know of it.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    pub interface_mtu: u32,
    /// Use this TCP congestion control on all hosts.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congestion_control: String,
    /// End when the command of this host has ended, instead of when all have; may be given several
    /// times.
    #[arg(long, value_name = "HOST")]
    pub until: Vec<String>,
    /// End after this time, such as `10` or `2.5s`.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub stop_after: Option<Duration>,
    /// Report once a second on stderr.
    #[arg(long)]
    pub live: bool,
    /// Write the counters as JSON, an object a line, each second and at the end, to a file; `-` is
    /// stdout.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the packets that each host sends and receives to <DIRECTORY>/<host>.pcap.
    #[arg(long, value_name = "DIRECTORY")]
    pub pcap: Option<PathBuf>,
    /// Write at most this many bytes of each packet to the captures.
    #[arg(long, value_name = "BYTES", default_value_t = 65_535)]
    pub snaplen: u32,
    /// Run these commands, one for each host, with `---` between them.
    #[arg(last = true, required = true, value_name = "COMMAND --- COMMAND")]
    pub commands: Vec<String>,
}

impl RunArguments {
    /// The command lines of the hosts.
    pub fn command_lines(&self) -> Vec<Vec<String>> {
        self.commands
            .split(|word| word == "---")
            .map(<[String]>::to_vec)
            .collect()
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|seconds| (0.0..=1e9).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a number of seconds such as `10`".to_owned())
}
