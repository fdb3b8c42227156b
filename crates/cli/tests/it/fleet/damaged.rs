//! Files of a machine's state that were cut.

use super::*;

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn damaged_caches_are_fetched_again_and_end_no_dataflow() {
    let mut fleet = Fleet::with_own_name(None);
    start_counting(&fleet);
    let processes = fleet.processes();
    for daemon in fleet.daemons.iter_mut().flatten() {
        daemon.kill();
    }
    let files = ["peers.json", "desired.json"].map(|name| fleet.state(1).join(name));
    files.iter().for_each(|file| cut(file));
    // Without the coordinator, the desired state is not known.
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("peers.json: it is damaged");
    fleet.daemon(1).line("robot is ready");
    fleet.daemon(1).line("desired.json: it is damaged");
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.await_samples(20);
    fleet.await_that("both are there again", |_| {
        files.iter().all(|it| it.exists())
    });
    for file in &files {
        assert!(file.with_extension("json.damaged").exists());
    }
    assert_eq!(fleet.processes(), processes, "all nodes go on");
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn a_damaged_file_that_cannot_be_fetched_is_named_with_the_way_out() {
    let mut fleet = Fleet::new(None);
    for daemon in fleet.daemons.iter_mut().flatten() {
        daemon.kill();
    }
    for (at, file, command) in [
        (0, "coordinator/store.redb", "up"),
        (1, "machine.json", "join"),
    ] {
        let path = fleet.state(at).join(file);
        cut(&path);
        let (code, text) = refused(&fleet, at, &[command]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert!(
            text.contains("damaged") && text.contains("hint: restore"),
            "{text}"
        );
        assert!(!text.contains("panicked"), "{text}");
    }
}
