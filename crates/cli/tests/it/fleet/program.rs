//! The program of one node is replaced, on another machine.

use std::os::unix::fs::PermissionsExt;

use super::instances::{await_more, start_on, three_machines};
use super::*;

/// The dataflow of the tests, whose source is a script of its folder.
fn with_script(fleet: &Fleet, script: &str) -> PathBuf {
    let mut dataflow = numbers("");
    dataflow["nodes"][0]["path"] = json!("./source.sh");
    // Its outputs stay open when it fails.
    dataflow["nodes"][0]["restart_policy"] = json!("on-failure");
    let nodes = dataflow["nodes"].as_array_mut().unwrap();
    nodes.push(json!({"id": "other", "machine": "robot", "path": test_node(), "args": "idle"}));
    let file = fleet.file(&dataflow);
    write_script(&file, script);
    file
}

/// A version of the source, which first prints its name.
fn write_script(file: &Path, script: &str) {
    let path = file.with_file_name("source.sh");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn printing(version: &str) -> String {
    let program = test_node();
    format!(
        "echo {version}; exec {} source 1000000 5 100",
        program.display()
    )
}

/// Replaces the program of the source in all instances. Returns the exit code and stderr.
fn replace(fleet: &Fleet, file: &Path) -> (Option<i32>, String) {
    let name = fleet.dataflow.clone();
    let arguments = [
        "start",
        file.to_str().unwrap(),
        "--name",
        &name,
        "--rolling",
        "--node",
        "source",
        "--healthy-for",
        "300ms",
    ];
    let output = fleet.run(&mut fleet.command(0, &arguments));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

/// The processes of the sink and the source.
fn pids(fleet: &Fleet) -> [Value; 2] {
    let status = fleet.json(0, &["status", "--json", "-d", &fleet.dataflow]);
    ["sink", "source"].map(|node| node_of(&status, node)["pid"].clone())
}

/// Number of lines of the source with the name of a version.
fn printed(fleet: &Fleet, version: &str) -> usize {
    let lines = fleet.printed(1, "source").into_iter();
    lines.filter(|line| line == version).count()
}

#[test]
fn one_node_gets_another_program_and_all_others_go_on() {
    let mut fleet = Fleet::with_own_name(None);
    let file = with_script(&fleet, &printing("one"));
    let name = fleet.dataflow.clone();
    let start = ["start", file.to_str().unwrap(), "--name", &name];
    fleet.output(0, &[&start[..], &["--bind", "edge=laptop"]].concat());
    fleet.await_samples(20);
    let keepers = || [keeper_of(&fleet, 0), keeper_of(&fleet, 1)];
    let (before, keepers_before) = (pids(&fleet), keepers());

    write_script(&file, &printing("two"));
    let (code, text) = replace(&fleet, &file);
    assert_eq!(code, Some(0), "{text}");
    let expected = format!("{name}: `source` on robot runs the new program\n");
    assert!(text.contains(&expected), "{text}");
    let after = pids(&fleet);
    assert!(after[0] == before[0] && after[1] != before[1], "{after:?}");
    assert_eq!(keepers(), keepers_before);
    assert_eq!((printed(&fleet, "one"), printed(&fleet, "two")), (1, 1));
    fleet.await_samples(20);

    // A program that is never ready, and one that fails later.
    let program = test_node();
    let late = format!("{} source 20 5 100; exit 3", program.display());
    for (script, reason, runs) in [("exit 3", "exited with code 3", 2), (&late, "source", 3)] {
        write_script(&file, script);
        let (code, text) = replace(&fleet, &file);
        assert_eq!(code, Some(2), "{text}");
        for part in [
            format!("`source` of {name} was not replaced: robot: "),
            reason.to_owned(),
            format!("{name}: the program of before runs again"),
        ] {
            assert!(text.contains(&part), "{part}: {text}");
        }
        assert_eq!(pids(&fleet)[0], before[0]);
        assert_eq!((printed(&fleet, "one"), printed(&fleet, "two")), (1, runs));
        fleet.await_samples(20);
    }

    // Another place in the dataflow is refused before anything stops.
    let is_untouched = pids(&fleet);
    let text = fs::read_to_string(&file).unwrap();
    let mut other: Value = serde_json::from_str(&text).unwrap();
    other["nodes"][0]["env"] = json!({"LEVEL": "2"});
    fs::write(&file, other.to_string()).unwrap();
    let (code, said) = replace(&fleet, &file);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("node `source` has another `env`: the dataflow that runs, and two.yml"),
        "{said}"
    );
    assert_eq!(pids(&fleet), is_untouched);

    // A power failure of the robot, whose coordinator is away: its daemon starts the new program.
    fleet.daemons[0].as_mut().unwrap().kill();
    fleet.daemons[1].as_mut().unwrap().kill();
    let of_robot = is_untouched[1].to_string().parse().unwrap();
    let [_, keeper] = keepers_before;
    kill(keeper.parse().unwrap());
    kill(of_robot);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.await_that(
        "the robot starts the program that has replaced the first",
        |fleet| printed(fleet, "two") == 4,
    );
    assert_eq!(printed(&fleet, "one"), 1);
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.daemon(0).line("laptop is ready");
    fleet.await_samples(20);
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
}

#[test]
fn one_node_is_replaced_in_one_instance_after_the_other_until_it_fails() {
    let mut fleet = three_machines();
    let file = with_script(&fleet, &printing("one"));
    fleet.output(0, &start_on(&fleet, &file, "robot=robot,r2"));
    for instance in ["robot", "r2"] {
        await_more(&mut fleet, instance);
    }
    let name = fleet.dataflow.clone();
    let script = format!(
        "case $NERVURE_STATE in */r2) exit 3;; esac; {}",
        printing("two")
    );
    write_script(&file, &script);
    let (code, text) = replace(&fleet, &file);
    // In the order of their names: `r2` is before `robot`.
    assert_eq!(code, Some(2), "{text}");
    for part in [
        format!("{name}@r2: 1 of 2"),
        format!("`source` of {name}@r2 was not replaced: r2: "),
        format!("{name}@r2: the program of before runs again"),
        format!("as before: {name}@robot"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    write_script(&file, &printing("two"));
    let (code, text) = replace(&fleet, &file);
    assert_eq!(code, Some(0), "{text}");
    for instance in ["robot", "r2"] {
        let line = format!("{name}@{instance}: `source` on {instance} runs the new program");
        assert!(text.contains(&line), "{text}");
        await_more(&mut fleet, instance);
    }
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
}
