//! Observers of running dataflows, by the API of the node library.

use std::{fs, time::Duration};

use nervure_node::{Event, Observer};
use nervure_shm::{Received, Seqpacket};
use rustix::{
    event::{PollFd, PollFlags},
    process::Signal,
};
use serde_json::json;

use crate::dataflow::{Dataflow, Process, Run, output};

/// A source of numbers, and a sink that no observer may affect.
fn numbers(keys: serde_json::Value) -> Run {
    let mut source = json!({"outputs": {"out": {"history": 2}}});
    source
        .as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    let mut run = Dataflow::named()
        .node("source", "source 1000000 5", source)
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run(&[]);
    run.line("sink", "in 3");
    run
}

fn open(run: &Run) -> Observer {
    Observer::open(Some(run.name()), &["source/out"], 16, "test").unwrap()
}

fn next_number(observer: &mut Observer) -> u64 {
    loop {
        match observer
            .next_timeout(Duration::from_secs(60))
            .expect("an event")
        {
            Event::Input { id, sample } => {
                assert_eq!(&*id, "source/out");
                return sample.as_slice::<u64>().unwrap()[0];
            }
            Event::Stop { reason } => panic!("{reason}"),
            _ => {}
        }
    }
}

#[test]
fn an_observer_receives_the_history_and_later_samples_in_order() {
    let run = numbers(json!({}));
    let mut observer = open(&run);
    assert!(observer.id().starts_with("test@"));
    let first = next_number(&mut observer);
    for number in first + 1..first + 20 {
        assert_eq!(next_number(&mut observer), number);
    }
    run.signal(Signal::INT);
    let mut last = None;
    while let Some(event) = observer.next() {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Stop { .. })), "{last:?}");
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_restarted_producer_is_still_observed() {
    let mut run = numbers(json!({"restart_policy": "on-failure", "restart_delay": "1ms"}));
    let mut observer = open(&run);
    let before = next_number(&mut observer);
    assert!(before > 0);
    run.started("source").signal(Signal::KILL);
    let (mut failed, mut restarted) = (false, false);
    loop {
        match observer
            .next_timeout(Duration::from_secs(60))
            .expect("an event")
        {
            Event::NodeFailed { node, .. } => failed = node == "source",
            Event::NodeRestarted { node, .. } => restarted = node == "source",
            Event::Input { sample, .. } if sample.header().incarnation == 1 => {
                assert_eq!(
                    sample.as_slice::<u64>().unwrap()[0],
                    0,
                    "from the first sample on"
                );
                break;
            }
            Event::Input { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(failed && restarted);
}

#[test]
fn an_observer_is_notified_of_a_killed_keeper() {
    let mut run = numbers(json!({}));
    let mut observer = open(&run);
    next_number(&mut observer);
    run.started("source").parent().signal(Signal::KILL);
    let mut reason = None;
    while let Some(event) = observer.next() {
        if let Event::Stop { reason: why } = event {
            reason = Some(why);
        }
    }
    assert_eq!(reason.as_deref(), Some("the keeper is gone"));
}

#[test]
fn topics_that_cannot_be_observed_are_explained() {
    let run = numbers(json!({}));
    let error = Observer::open(Some(run.name()), &["source/image"], 1, "test").unwrap_err();
    assert_eq!(error.to_string(), "there is no topic `source/image`");
    let error = Observer::open(Some("no-such-dataflow"), &["source/out"], 1, "test").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no dataflow `no-such-dataflow` runs; these do: "),
        "{error}"
    );
}

/// Number of open descriptors of a process.
fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn memory_maps(pid: i32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/maps"))
        .unwrap()
        .lines()
        .count()
}

#[test]
fn a_thousand_observers_leave_nothing() {
    const OBSERVERS: usize = 1000;
    let mut run = numbers(json!({}));
    let (source, keeper) = (run.started("source"), run.started("source").parent());
    let pids = [
        source.pid.as_raw_pid(),
        keeper.pid.as_raw_pid(),
        std::process::id() as i32,
    ];
    let observe = || {
        let mut observer = open(&run);
        next_number(&mut observer);
        observer.id().to_owned()
    };
    for _ in 0..20 {
        observe();
    }
    let before = pids.map(|pid| (descriptors(pid), memory_maps(pid)));
    for _ in 0..OBSERVERS {
        observe();
    }
    // The last observers may not be removed yet, and other tests of this process have a hundred open pipes. A leak would
    // add a descriptor for each of the thousand observers.
    let after = pids.map(|pid| (descriptors(pid), memory_maps(pid)));
    for (before, after) in before.iter().zip(after) {
        let most = |before: usize| before + OBSERVERS / 2;
        assert!(
            after.0 <= most(before.0) && after.1 <= most(before.1),
            "{before:?} {after:?}"
        );
    }
    let id = observe();
    assert!(
        id.len() < "test@1234567.99".len(),
        "names are used again: {id}"
    );
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

fn status(run: &Run) -> serde_json::Value {
    let output = run
        .command(&["status", "--json", "-d", run.name()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_stopped_observer_delays_no_node_and_a_killed_one_is_removed() {
    let mut run = numbers(json!({}));
    let mut echo = run
        .command(&["topic", "echo", "source/out", "--json", "-d", run.name()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(echo.stdout.take().unwrap()));
    let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let process = Process::new(echo.id().into());
    process.signal(Signal::STOP);
    // Far more samples than fit into its queue or into a pipe.
    let far = first["sequence"].as_u64().unwrap() + 300;
    run.line("sink", &format!("in {far}"));
    let observers = status(&run)["observers"].clone();
    assert_eq!(observers.as_array().unwrap().len(), 1, "{observers}");
    process.signal(Signal::KILL);
    process.assert_ends();
    echo.wait().unwrap();
    while !status(&run)["observers"].as_array().unwrap().is_empty() {}
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0));
    let edge = &outcome.summary()["edges"][0];
    assert_eq!(
        (&edge["input"], &edge["lost"]),
        (&json!("sink/in"), &json!(0)),
        "{edge}"
    );
    assert_eq!(
        outcome.summary()["edges"].as_array().unwrap().len(),
        1,
        "observers are no part of the summary"
    );
}

#[test]
fn clients_that_come_and_go_do_not_disturb_each_other() {
    let run = numbers(json!({}));
    for _ in 0..40 {
        let start = || {
            let mut command = run.command(&["status", "--json", "-d", run.name()]);
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        };
        for mut client in [start(), start(), start()] {
            assert!(client.wait().unwrap().success());
        }
    }
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn idle_clients_give_their_places_to_others() {
    let run = numbers(json!({}));
    let address = nervure_node::running::find(Some(run.name()))
        .unwrap()
        .to_string();
    let observer = open(&run);
    // More connections than the keeper accepts; silent ones must not lock the commands out.
    let connect = |_| {
        std::iter::repeat_with(|| Seqpacket::connect(&address))
            .find_map(Result::ok)
            .unwrap()
    };
    let idle: Vec<_> = (0..64).map(connect).collect();
    let ask = || run.command(&["status", "-d", run.name()]).output().unwrap();
    let status = std::iter::repeat_with(ask)
        .take(5000)
        .find(|status| status.status.success())
        .unwrap();
    assert!(
        String::from_utf8_lossy(&status.stdout).contains("source"),
        "{status:?}"
    );
    let mut buffer = Vec::with_capacity(1 << 20);
    let parsed = idle.iter().filter(|socket| {
        matches!(socket.receive(&mut buffer), Ok(Received::Packet(_)))
            && String::from_utf8_lossy(&buffer).contains("this connection was idle for")
    });
    assert!(parsed.count() > 0);
    drop(observer);
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[test]
fn a_client_with_invalid_messages_is_disconnected_and_the_dataflow_goes_on() {
    let mut run = numbers(json!({}));
    let address = nervure_node::running::find(Some(run.name()))
        .unwrap()
        .to_string();
    let connect = || Seqpacket::connect(&address).unwrap();
    let answer = |socket: &Seqpacket| {
        let mut buffer = Vec::with_capacity(1 << 20);
        loop {
            let mut polled = [PollFd::new(socket, PollFlags::IN)];
            rustix::event::poll(&mut polled, None).unwrap();
            match socket.receive(&mut buffer) {
                Ok(Received::Packet(_)) => return Some(String::from_utf8(buffer).unwrap()),
                Ok(Received::Closed) => return None,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    };
    let long = vec![b' '; 170 * 1024];
    for nonsense in [
        &b"\xff\xfe"[..],
        b"{}",
        b"[1,2",
        b"{\"message\":\"observe\",\"topics\":7}",
        &long,
    ] {
        let socket = connect();
        socket.send(nonsense, &[]).unwrap();
        assert_eq!(
            answer(&socket),
            None,
            "{:?}",
            &nonsense[..nonsense.len().min(20)]
        );
    }
    let stranger = connect();
    stranger
        .send(
            br#"{"message":"hello","versions":{"min":7,"max":9},"program":"\u001b[2J"}"#,
            &[],
        )
        .unwrap();
    assert!(answer(&stranger).unwrap().contains("version mismatch"));
    stranger
        .send(br#"{"message":"stop","reason":"mischief"}"#, &[])
        .unwrap();
    assert!(
        answer(&stranger)
            .unwrap()
            .contains("the first message was not Hello")
    );
    // A client that requests everything and reads nothing.
    let deaf = connect();
    deaf.send(
        br#"{"message":"hello","versions":{"min":1,"max":1},"program":"deaf"}"#,
        &[],
    )
    .unwrap();
    deaf.send(br#"{"message":"watch","logs":true,"follow":true}"#, &[])
        .unwrap();
    let now = status(&run);
    assert_eq!(now["state"], "running");
    let number: u64 = run.line("sink", "in ").parse().unwrap();
    run.line("sink", &format!("in {}", number + 50));
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

/// Threads get their stack from a size in the environment: the system refuses one of 64 TiB. The
/// library's own threads have a size of their own.
#[test]
fn a_command_that_gets_no_thread_says_so() {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run(&[]);
    run.started("sink");
    let topic = format!("{}:source/out", run.name());
    for arguments in [
        &["topic", "echo", &topic][..],
        &["topic", "hz", &topic],
        &["logs", "--follow", "-d", run.name()],
    ] {
        let mut command = run.command(arguments);
        command.env("RUST_MIN_STACK", (1_u64 << 46).to_string());
        let (code, _, stderr) = output(command);
        assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        assert!(
            stderr.contains("error: cannot start a thread"),
            "{arguments:?}: {stderr}"
        );
    }
}
