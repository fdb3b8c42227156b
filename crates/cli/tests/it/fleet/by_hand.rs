//! Orders of the robot's own user, on the robot, without the role of an operator.

use std::io::Write as _;

use super::*;

/// Starts an endless source on the robot. The laptop prints its samples.
fn begin(namespaces: Option<Namespaces>) -> Fleet {
    let mut fleet = Fleet::new(namespaces);
    let folder = fleet.folder.path().file_name().unwrap().to_string_lossy();
    let letters: String = folder.chars().filter(char::is_ascii_alphanumeric).collect();
    fleet.dataflow = format!("two-{letters}");
    start_endless(&fleet, "source 1000000 5 100");
    fleet
}

/// Runs a command on the robot, which has to succeed. Returns its output.
fn on_robot(fleet: &Fleet, order: &[&str]) -> String {
    fleet.output(1, &[order, &["-d", &fleet.dataflow]].concat())
}

fn keepers(fleet: &Fleet) -> usize {
    let is_keeper = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let state = fleet.state(1);
        let state = state.as_os_str().as_encoded_bytes();
        command == b"nervure\0__keeper\0"
            && environment.windows(state.len()).any(|part| part == state)
    };
    fleet
        .processes()
        .iter()
        .filter(|pid| is_keeper(pid))
        .count()
}

fn restart_daemon(fleet: &mut Fleet) {
    if let Some(daemon) = &mut fleet.daemons[1] {
        daemon.kill();
    }
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
}

/// The coordinator knows that the robot's user has stopped it, and nothing starts it again.
fn check_stopped(fleet: &mut Fleet, role: &str) {
    assert_eq!(keepers(fleet), 0);
    let is_known = |fleet: &Fleet| {
        let run = fleet.actual("robot");
        run.is_some_and(|run| run["state"]["is"] == "ended" && run["by_hand"] == "stopped")
    };
    fleet.await_that("the coordinator knows", is_known);
    restart_daemon(fleet);
    fleet.await_that("the next daemon has reported", |fleet| {
        is_listed(fleet, "robot", role, "reachable") && is_known(fleet)
    });
    assert_eq!(keepers(fleet), 0);
    let list = fleet.output(0, &["machine", "list"]);
    assert!(list.contains("stopped on the machine itself"), "{list}");
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    // An operator starts it again: that is another run.
    start_endless(fleet, "source 1000000 5 100");
    assert_eq!(keepers(fleet), 1);
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn the_user_of_a_robot_stops_it_beside_the_coordinator() {
    let mut fleet = begin(None);
    let said = on_robot(&fleet, &["stop"]);
    assert!(said.contains("has stopped"), "{said}");
    check_stopped(&mut fleet, "robot");
}

#[test]
fn the_user_of_a_robot_kills_its_nodes_while_the_cable_is_out() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let mut fleet = begin(Some(namespaces));
    fleet.cable("down");
    on_robot(&fleet, &["stop", "--kill"]);
    assert_eq!(keepers(&fleet), 0);
    fleet.cable("up");
    check_stopped(&mut fleet, "robot");
}

#[test]
fn the_user_of_a_robot_stops_it_without_its_daemon() {
    for order in [&["stop"][..], &["stop", "--kill"]] {
        let mut fleet = begin(None);
        fleet.daemons[1].as_mut().unwrap().kill();
        on_robot(&fleet, order);
        assert_eq!(keepers(&fleet), 0);
        restart_daemon(&mut fleet);
        check_stopped(&mut fleet, "robot");
    }
}

#[test]
fn the_user_of_a_robot_kills_a_keeper_that_hangs() {
    let mut fleet = begin(None);
    let state = fleet.actual("robot").unwrap()["state"].clone();
    let keeper = i32::try_from(state["keeper"].as_u64().unwrap()).unwrap();
    let keeper = rustix::process::Pid::from_raw(keeper).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::STOP).unwrap();
    let (code, text) = refused(&fleet, 1, &["stop", "-d", &fleet.dataflow]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("--kill"), "{text}");
    on_robot(&fleet, &["stop", "--kill"]);
    check_stopped(&mut fleet, "robot");
}

#[test]
fn the_user_of_a_robot_stops_a_dataflow_whose_keeper_is_being_restarted() {
    let mut fleet = begin(None);
    let state = fleet.actual("robot").unwrap()["state"].clone();
    kill(u32::try_from(state["keeper"].as_u64().unwrap()).unwrap());
    on_robot(&fleet, &["stop"]);
    check_stopped(&mut fleet, "robot");
}

/// A file system of its own for the state of the robot, which can be filled.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(fleet: &Fleet) -> Option<Self> {
        let folder = fleet.state(1);
        fs::create_dir_all(&folder).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(&folder);
        let is_mounted = mount.status().is_ok_and(|status| status.success());
        is_mounted.then_some(Self(folder))
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn the_user_of_a_robot_stops_and_pauses_it_on_a_full_disk() {
    let mut fleet = Fleet::unpaired(None, None);
    fleet.daemons = vec![None, None];
    let Some(disk) = SmallDisk::mount(&fleet) else {
        eprintln!("skipped: nothing can be mounted");
        return;
    };
    let folder = fleet.folder.path().file_name().unwrap().to_string_lossy();
    let letters: String = folder.chars().filter(char::is_ascii_alphanumeric).collect();
    fleet.dataflow = format!("two-{letters}");
    let up = ["up", "--name", "laptop", "--address", "127.0.0.1:0"];
    let laptop = Daemon::start(fleet.command(0, &up));
    laptop.line("nervure join");
    fleet.daemons[0] = Some(laptop);
    fleet.join(1, "robot");
    start_endless(&fleet, "source 1000000 5 100");
    disk.fill();
    on_robot(&fleet, &["pause"]);
    restart_daemon(&mut fleet);
    fleet.await_that("the pause holds", |fleet| {
        let run = fleet.actual("robot");
        run.is_some_and(|run| run["is_paused"] == true && run["by_hand"] == "paused")
    });
    on_robot(&fleet, &["stop", "--kill"]);
    assert_eq!(keepers(&fleet), 0);
    restart_daemon(&mut fleet);
    fleet.await_that("the coordinator knows", |fleet| {
        let run = fleet.actual("robot");
        run.is_some_and(|run| run["state"]["is"] == "ended" && run["by_hand"] == "stopped")
    });
    assert_eq!(keepers(&fleet), 0);
    fs::remove_file(disk.0.join("filler")).unwrap();
    check_stopped(&mut fleet, "robot");
}

#[test]
fn a_pause_of_the_robots_user_holds_until_they_take_it_back() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let mut fleet = begin(Some(namespaces));
    let name = fleet.dataflow.clone();
    let is_paused = |fleet: &Fleet| {
        let run = fleet.actual("robot").unwrap();
        (run["is_paused"] == true, run["by_hand"] == "paused")
    };
    fleet.cable("down");
    on_robot(&fleet, &["pause"]);
    fleet.cable("up");
    fleet.await_that("the coordinator knows", |fleet| {
        is_paused(fleet) == (true, true)
    });
    let (code, text) = refused(&fleet, 0, &["resume", "-d", &name]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("stays paused on robot"), "{text}");
    restart_daemon(&mut fleet);
    fleet.await_that("the next daemon holds it", |fleet| {
        is_paused(fleet) == (true, true)
    });
    on_robot(&fleet, &["resume"]);
    fleet.await_that("it goes on", |fleet| is_paused(fleet) == (false, false));
    fleet.await_samples(20);

    // A pause by an operator is ended by an operator only.
    fleet.output(0, &["pause", "-d", &name]);
    let (code, text) = refused(&fleet, 1, &["resume", "-d", &name]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("an operator has paused it"), "{text}");
    fleet.output(0, &["resume", "-d", &name]);
    fleet.await_samples(20);
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
}

#[test]
fn an_operators_machine_without_the_coordinator_stops_its_own_part_and_says_so() {
    let mut fleet = Fleet::with_own_name(None);
    start_endless(&fleet, "source 1000000 5 100");
    fleet.daemons[0].as_mut().unwrap().kill();
    let (code, text) = refused(&fleet, 1, &["stop", "-d", &fleet.dataflow]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("on this machine alone") && text.contains("cannot be reached"),
        "{text}"
    );
    assert_eq!(keepers(&fleet), 0);
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.daemon(0).line("laptop is ready");
    check_stopped(&mut fleet, "operator");
}

/// All log files of the dataflow on the robot.
fn log_of_robot(fleet: &Fleet) -> String {
    let runs = fs::read_dir(fleet.logs(1).join(&fleet.dataflow)).unwrap();
    let files = runs
        .flatten()
        .flat_map(|run| fs::read_dir(run.path()).unwrap().flatten());
    let texts = files.map(|file| fs::read_to_string(file.path()).unwrap_or_default());
    texts.collect()
}

/// Commands of an operator for a robot that does not answer: each names it, and withdraws its order when it gives
/// up or is interrupted.
#[test]
fn a_pause_that_was_given_up_is_withdrawn() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = begin(Some(namespaces));
    let name = fleet.dataflow.clone();
    fleet.await_that("it is reachable", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    for interrupted in [true, false] {
        fleet.cable("down");
        fleet.await_that("it is shown as unreachable", |fleet| {
            is_listed(fleet, "robot", "robot", "unreachable")
        });
        let pause = Daemon::start(fleet.command(0, &["pause", "-d", &name]));
        pause.line("waiting for robot (cannot be reached) to pause");
        if interrupted {
            let pid = rustix::process::Pid::from_raw(pause.child.id().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        }
        pause.line("the order is withdrawn from robot");
        if !interrupted {
            pause.line("robot (cannot be reached) did not pause within");
        }
        drop(pause);
        fleet.cable("up");
        fleet.await_that("it is reachable again", |fleet| {
            is_listed(fleet, "robot", "robot", "reachable")
        });
        // An order that the robot takes later: it would have taken that one as well.
        fleet.start_and_stop(&format!("{name}-other"), &numbers("source 1000000 5 100"));
        let log = log_of_robot(&fleet);
        assert!(!log.contains("is paused by"), "{log}");
    }
    // The log has such lines.
    fleet.output(0, &["pause", "-d", &name]);
    let log = log_of_robot(&fleet);
    assert!(log.contains("is paused by"), "{log}");
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
}
