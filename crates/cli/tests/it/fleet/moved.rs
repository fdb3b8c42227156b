//! A coordinator that is at another address, or comes back from a backup.

use super::*;

/// The addresses of the two machines on their cable.
const LAPTOP: &str = "10.77.0.1";

/// Changes the address of a machine.
fn move_to(fleet: &Fleet, at: usize, from: &str, to: &str) {
    let namespaces = fleet.namespaces.as_ref().unwrap();
    let interface = {
        let output = namespaces
            .command(at, "ip")
            .args(["-o", "-4", "addr"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text
            .lines()
            .find(|line| line.contains(from))
            .unwrap_or_else(|| panic!("{text}"));
        line.split_ascii_whitespace().nth(1).unwrap().to_owned()
    };
    for (verb, address) in [("del", from), ("add", to)] {
        let address = format!("{address}/24");
        run(namespaces
            .command(at, "ip")
            .args(["addr", verb, &address, "dev", &interface]));
    }
}

/// A fleet whose coordinator is started by `up` with these arguments.
fn begin(up: &[&str]) -> Option<Fleet> {
    let mut fleet = Fleet::unpaired(Some(Namespaces::new(1)?), None);
    fleet.daemons = vec![None, None];
    start_up(&mut fleet, up);
    fleet.join(1, "robot");
    await_reachable(&fleet);
    Some(fleet)
}

fn start_up(fleet: &mut Fleet, up: &[&str]) {
    let up = [&["up", "--name", "laptop"][..], up].concat();
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &up)));
    fleet.daemon(0).line("nervure join");
}

fn await_reachable(fleet: &Fleet) {
    fleet.await_that("the robot is reachable", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
}

fn await_unreachable(fleet: &Fleet) {
    fleet.await_that("the robot is unreachable", |fleet| {
        is_listed(fleet, "robot", "robot", "unreachable")
    });
}

#[test]
fn a_laptop_that_gets_another_address_has_its_robot_back() {
    // Without a default route.
    let Some(mut fleet) = begin(&[]) else {
        return;
    };
    start_endless(&fleet, "source 1000000 5 100");
    let processes = fleet.processes();
    move_to(&fleet, 0, LAPTOP, "10.77.0.11");
    await_unreachable(&fleet);
    await_reachable(&fleet);
    fleet.await_samples(50);
    assert_eq!(fleet.processes(), processes);
    // Orders reach it, and the next daemon of the robot finds the coordinator by itself.
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
    fleet.daemons[1].as_mut().unwrap().kill();
    await_unreachable(&fleet);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    await_reachable(&fleet);
}

#[test]
fn a_coordinator_that_was_at_one_address_is_started_at_another() {
    let Some(mut fleet) = begin(&["--address", "10.77.0.1:7700"]) else {
        return;
    };
    fleet.daemons[0].as_mut().unwrap().kill();
    move_to(&fleet, 0, LAPTOP, "10.77.0.11");
    // As before: the address of the last time is gone.
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.daemon(0).line("has no address 10.77.0.1 any more");
    let invitation = fleet.daemon(0).line("nervure join");
    assert!(invitation.contains("10.77.0.11:7700"), "{invitation}");
    await_reachable(&fleet);
    // A robot that runs takes a new invitation too.
    let line = fleet.output(0, &["machine", "invite"]);
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    let output = fleet.command(1, &words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("uses the new address"),
        "{said}"
    );
}

#[test]
fn a_robot_whose_known_addresses_are_all_dead_is_told_one() {
    let Some(mut fleet) = begin(&[]) else {
        return;
    };
    for daemon in fleet.daemons.iter_mut().flatten() {
        daemon.kill();
    }
    // Both are elsewhere, so that neither finds the other.
    move_to(&fleet, 0, LAPTOP, "10.77.0.11");
    move_to(&fleet, 1, "10.77.0.2", "10.77.0.12");
    start_up(&mut fleet, &[]);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    let (code, text) = refused(&fleet, 1, &["join", "--at", "10.77.0.13"]);
    assert_eq!(code, Some(1), "{text}");
    let output = fleet
        .command(1, &["join", "--at", "10.77.0.11"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    await_reachable(&fleet);
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_coordinator_that_comes_back_from_a_backup_gives_orders_again_and_ends_nothing() {
    let mut fleet = Fleet::with_own_name(None);
    let name = fleet.dataflow.clone();
    let up = |fleet: &mut Fleet| {
        fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
        fleet.daemon(0).line("laptop is ready");
    };
    // The backup has a run that has ended since.
    start_endless(&fleet, "source 1000000 5 100");
    fleet.daemons[0].as_mut().unwrap().kill();
    let (state, backup) = (fleet.state(0), fleet.folder.path().join("backup"));
    copy(&state.join("coordinator"), &backup);
    up(&mut fleet);
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
    start_endless(&fleet, "source 1000000 5 100");
    let processes = fleet.processes();
    fleet.daemons[0].as_mut().unwrap().kill();
    fs::remove_dir_all(state.join("coordinator")).unwrap();
    copy(&backup, &state.join("coordinator"));
    up(&mut fleet);
    fleet
        .daemon(1)
        .line("the coordinator's store has gone back from revision");
    fleet.await_that("the robot's runs are shown", |fleet| {
        let list = fleet.output(0, &["machine", "list"]);
        list.lines().any(|line| {
            line.starts_with("robot") && line.contains("unknown to the coordinator's store")
        })
    });
    fleet.await_samples(50);
    assert_eq!(
        fleet.processes(),
        processes,
        "nothing has ended or was started"
    );

    // It takes orders, and an operator can stop a run that the store does not know.
    fleet.start_and_stop(&format!("{name}-other"), &numbers("source 1000000 5 100"));
    fleet.output(0, &["stop", "-d", &name]);
    // The old run of that name is in the store still.
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
}

#[test]
fn a_store_that_was_emptied_is_no_empty_fleet() {
    let mut fleet = Fleet::new(None);
    fleet.daemons[0].as_mut().unwrap().kill();
    fs::remove_file(fleet.state(0).join("coordinator/store.redb")).unwrap();
    let (code, text) = refused(&fleet, 0, &["up"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("the state of the fleet is gone") && text.contains("--new-fleet"),
        "{text}"
    );
    // A second try is refused, too.
    assert_eq!(refused(&fleet, 0, &["up"]).0, Some(2));
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up", "--new-fleet"])));
    fleet.daemon(0).line("nervure join");
    // Its machines have to be invited again, and report this.
    fleet.daemon(1).line("it is not paired");
}

#[test]
fn all_addresses_of_a_machine_are_named_by_none_that_means_all() {
    let fleet = Fleet::unpaired(None, None);
    for (at, all) in ["0.0.0.0:0", "[::]:0"].into_iter().enumerate() {
        let up = Daemon::start(fleet.command(at, &["up", "--name", "s", "--address", all]));
        let line = up.line("nervure join");
        assert!(
            !line.contains("0.0.0.0") && !line.contains("[::]"),
            "{line}"
        );
    }
}
