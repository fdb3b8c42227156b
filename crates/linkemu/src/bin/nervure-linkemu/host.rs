//! The two processes of a host, seen from inside.
//!
//! The emulator starts `__namespaces`, which leaves every namespace but the user's files, and
//! starts `__host` as the first process of the new process namespace. Everything that its command
//! starts lives in that namespace, and the kernel ends it all with its first process. That process
//! ends when its socket to the emulator closes, so nothing is left behind even if a process is
//! killed. Nothing has a name outside, so there is nothing to remove either.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use crate::messages::{Channel, FromHost, Setup, ToHost};
use crate::netlink::{Interface, Netlink};
use crate::sys;

/// The interface of every host.
pub const INTERFACE: &str = "link0";

/// The emulator reads each device about every 100 us; when others use the processor it may be tens
/// of milliseconds, at 84 packets a millisecond for a gigabit.
const UNREAD_PACKETS: u32 = 20_000;

/// Leaves the namespaces and starts the first process of the host.
pub fn enter_namespaces() -> ExitCode {
    let result = leave().and_then(|()| {
        let mut host = Command::new("/proc/self/exe");
        let status = host.arg("__host").status();
        status.map_err(|cause| failed("cannot start the first process of a host", &cause))
    });
    match result {
        Ok(status) => ExitCode::from(if status.success() { 0 } else { 1 }),
        Err(failure) => report_failure(&failure),
    }
}

fn leave() -> Result<(), FromHost> {
    die_with_parent()
        .map_err(|cause| failed("cannot tie a host's life to the emulator's", &cause))?;
    let mut namespaces = UnshareFlags::NEWNET
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWPID;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let is_root = user.is_root();
    if !is_root {
        namespaces |= UnshareFlags::NEWUSER;
    }
    sys::unshare(namespaces).map_err(|cause| FromHost::Failed {
        what: "cannot make namespaces".to_owned(),
        cause: cause.to_string(),
        hint: Some(rights_hint(is_root)),
    })?;
    if !is_root {
        // Root inside, the user outside.
        let map = |file: &str, text: &str| {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(|cause| failed(&format!("cannot write /proc/self/{file}"), &cause))
        };
        map("setgroups", "deny")?;
        map("uid_map", &format!("0 {} 1", user.as_raw()))?;
        map("gid_map", &format!("0 {} 1", group.as_raw()))?;
    }
    Ok(())
}

fn rights_hint(is_root: bool) -> String {
    if is_root {
        "this root may not make namespaces: it needs CAP_SYS_ADMIN and CAP_NET_ADMIN (in Docker: --privileged, or \
         --cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun --security-opt apparmor=unconfined)"
            .to_owned()
    } else {
        "run it with sudo, or allow user namespaces (sysctl user.max_user_namespaces, \
         kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)"
            .to_owned()
    }
}

/// Runs as the first process of a host.
pub fn serve() -> ExitCode {
    match serve_until_closed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report_failure(&failure),
    }
}

fn serve_until_closed() -> Result<(), FromHost> {
    die_with_parent()
        .map_err(|cause| failed("cannot tie a host's life to the emulator's", &cause))?;
    let channel =
        channel().map_err(|cause| failed("cannot take over the socket to the emulator", &cause))?;
    let lost = |cause: io::Error| failed("lost the emulator", &cause);
    let Some((ToHost::Setup(setup), _)) = channel.receive().map_err(lost)? else {
        return Ok(());
    };
    let tun = become_host(&setup).inspect_err(|failure| {
        let _ = channel.send(failure, None);
    })?;
    channel
        .send(&FromHost::Ready, Some(tun.as_fd()))
        .map_err(lost)?;
    // The device must vanish with the emulator.
    drop(tun);
    run(&channel, &setup)
}

/// Sets up files, name, interface and routes.
fn become_host(setup: &Setup) -> Result<fs::File, FromHost> {
    let (name, address) = &setup.hosts[setup.host];
    let step = |what: &str, result: io::Result<()>| result.map_err(|cause| failed(what, &cause));
    step(
        "cannot name a host",
        rustix::system::sethostname(name.as_bytes()).map_err(Into::into),
    )?;
    step(
        "cannot make its own files for a host",
        private_files(&setup.hosts),
    )?;
    // The kernel would send packets of its own.
    let ipv6 = Path::new("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    if ipv6.exists() {
        step("cannot switch IPv6 off in a host", fs::write(ipv6, "1"))?;
    }
    let tun = sys::open_tun(INTERFACE).map_err(|cause| FromHost::Failed {
        what: "cannot make a TUN device".to_owned(),
        cause: cause.to_string(),
        hint: Some(
            "/dev/net/tun must be there and writable: `modprobe tun`, in Docker `--device /dev/net/tun`, or run it \
             with sudo"
                .to_owned(),
        ),
    })?;
    step(
        "cannot set up the network of a host",
        network(setup, *address),
    )?;
    Ok(tun)
}

fn network(setup: &Setup, address: Ipv4Addr) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.raise_loopback()?;
    let interface = Interface {
        name: INTERFACE,
        mtu: setup.mtu,
        queue_packets: UNREAD_PACKETS,
    };
    netlink.raise(&interface)?;
    netlink.add_address(INTERFACE, address)?;
    netlink
        .add_routes(INTERFACE, address, &setup.congestion_control)
        .map_err(|cause| {
            let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
                .unwrap_or_default();
            let asked = &setup.congestion_control;
            io::Error::other(format!(
                "a route with the congestion control `{asked}`: {cause} (known: {})",
                known.trim()
            ))
        })
}

/// Mounts separate shared memory, process list and names: otherwise programs would find each other
/// through them, past the link.
fn private_files(hosts: &[(String, Ipv4Addr)]) -> io::Result<()> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)?;
    if Path::new("/dev/shm").is_dir() {
        rustix::mount::mount(
            "tmpfs",
            "/dev/shm",
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            None,
        )?;
        if Path::new("/etc/hosts").is_file() {
            let mut text = "127.0.0.1 localhost\n".to_owned();
            for (name, address) in hosts {
                text += &format!("{address} {name}\n");
            }
            let file = "/dev/shm/nervure-linkemu-hosts";
            fs::write(file, text)?;
            rustix::mount::mount_bind(file, "/etc/hosts")?;
            // The mount keeps it.
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// Runs the command on request, reaps ended processes, and returns when the emulator is gone.
fn run(channel: &Channel, setup: &Setup) -> Result<(), FromHost> {
    let internal = |cause: io::Error| failed("a host failed", &cause);
    let (deaths, bell) = std::os::unix::net::UnixStream::pair().map_err(internal)?;
    deaths.set_nonblocking(true).map_err(internal)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, bell).map_err(internal)?;
    let mut command: Option<Pid> = None;
    loop {
        let mut events = [
            PollFd::new(channel, PollFlags::IN),
            PollFd::from_borrowed_fd(deaths.as_fd(), PollFlags::IN),
        ];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut events, None))
            .map_err(|error| internal(error.into()))?;
        let [message, death] = events.map(|event| !event.revents().is_empty());
        if death {
            let _ = io::Read::read(&mut &deaths, &mut [0; 64]);
            bury(channel, command);
        }
        if message {
            match channel.receive().map_err(internal)? {
                None => return Ok(()),
                Some((ToHost::Start, _)) => match start(setup) {
                    Ok(pid) => command = Some(pid),
                    Err(failure) => channel.send(&failure, None).map_err(internal)?,
                },
                Some((ToHost::Terminate, _)) => {
                    if let Some(pid) = command {
                        let _ = rustix::process::kill_process_group(pid, Signal::TERM);
                    }
                }
                Some((ToHost::Setup(_), _)) => {}
            }
        }
    }
}

fn start(setup: &Setup) -> Result<Pid, FromHost> {
    let (name, address) = &setup.hosts[setup.host];
    let peer = setup
        .hosts
        .iter()
        .find(|(other, _)| other != name)
        .map_or(*address, |peer| peer.1);
    let program = &setup.command[0];
    let child = Command::new(program)
        .args(&setup.command[1..])
        .env("LINKEMU_HOST", name)
        .env("LINKEMU_ADDRESS", address.to_string())
        .env("LINKEMU_PEER", peer.to_string())
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|cause| failed(&format!("{name}: cannot start `{program}`"), &cause))?;
    Ok(Pid::from_child(&child))
}

/// Reaps ended processes, and reports the end of the command.
fn bury(channel: &Channel, command: Option<Pid>) {
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if Some(pid) == command {
            let status = std::process::ExitStatus::from_raw(status.as_raw());
            let message = FromHost::Ended {
                exit_code: status.code(),
                signal: status.signal(),
                unread_packets: unread_packets(),
            };
            // Once the emulator is gone, no report is needed.
            let _ = channel.send(&message, None);
        }
    }
}

/// Packets that the device dropped because the emulator did not read them in time.
fn unread_packets() -> u64 {
    let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':'));
    // Eight columns on reception, then bytes, packets, errors and drops of transmission.
    line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok())
        .unwrap_or(0)
}

/// The socket that came as the standard input, which then is empty.
fn channel() -> io::Result<Channel> {
    let socket: OwnedFd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(fs::File::open("/dev/null")?)?;
    Ok(Channel::from(socket))
}

fn die_with_parent() -> io::Result<()> {
    // The first process of a host also ends with its socket, so a parent that is dead already does
    // no harm.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

fn failed(what: &str, cause: &io::Error) -> FromHost {
    FromHost::Failed {
        what: what.to_owned(),
        cause: cause.to_string(),
        hint: None,
    }
}

/// Reports a failure to the emulator, which prints it; over the standard input if that is still the
/// socket.
fn report_failure(failure: &FromHost) -> ExitCode {
    if let Ok(channel) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        let _ = Channel::from(channel).send(failure, None);
    }
    ExitCode::FAILURE
}
