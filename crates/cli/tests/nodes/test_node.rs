//! A node for tests with real processes; its first argument selects its behaviour.

mod goals;
mod poses;

use std::{
    error::Error,
    fs::{File, OpenOptions, read_to_string},
    os::unix::fs::FileExt,
    path::Path,
    thread::sleep,
    time::Duration,
};

use futures_lite::{StreamExt, future};
use nervure_node::{
    CallError, Envelope, Event, EventStream, Metadata, Node, SendError, SerdeSample, Tensor,
    message::{JsonSample, Scalar},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).map_or(Ok(0), |text| text.parse::<u64>());
    match arguments.first().map(String::as_str) {
        Some("source") => source(number(1)?, number(2)?, number(3)?),
        Some("source-until") => source_until(arguments.get(1).ok_or("which file?")?, number(2)?),
        Some("two-sources") => two_sources(),
        Some("growing-source") => growing_source(number(1)?, number(2)?),
        Some("values") => values(),
        Some("typed") => typed(),
        Some("receive") => receive(),
        Some("frames") => frames(),
        Some("frame-sink") => frame_sink(),
        Some("sink") => sink(number(1)?),
        Some("late-sink") => late_sink(Path::new(arguments.get(1).ok_or("which file?")?)),
        Some("texts") => texts(),
        Some("doomed-sink") => doomed_sink(number(1)?, || std::process::abort()),
        Some("failing-sink") => doomed_sink(number(1)?, || Err("as requested".into())),
        Some("new-memory") => new_memory(),
        Some("relay") => relay(),
        Some("join") => join(arguments.get(1), arguments.get(2)),
        Some("clock") => clock(),
        Some("ticks") => ticks(),
        Some("idle") => idle(),
        Some("until") => until(Path::new(arguments.get(1).ok_or("which file?")?)),
        Some("stop-badly") => stop_badly(),
        Some("deaf") => deaf(),
        Some("hang") => hang(),
        Some("vandal-of-edges") => vandal_of_edges(),
        Some("vandal") => vandal(arguments.get(1).ok_or("which pages?")?),
        Some("pose") => poses::pose(&arguments[1..]),
        Some("look-up") => poses::look_up(&arguments[1..]),
        Some("pose-relay") => poses::pose_relay(&arguments[1..]),
        Some("work") => goals::work(),
        Some("act") => goals::act(),
        Some("act-twice") => goals::act_twice(),
        Some("act-on") => goals::act_on(),
        Some("act-slowly") => goals::act_slowly(),
        Some("serve") => serve(),
        Some("call") => call(number(1)?),
        Some("call-badly") => call_badly(),
        Some("call-on") => call_on(),
        Some("call-again") => call_again(),
        Some("call-always") => call_always(),
        Some("call-strictly") => call_strictly(),
        Some("call-async") => async_io::block_on(call_async()),
        other => Err(format!("what is a {other:?}?").into()),
    }
}

/// Sends the numbers from 0 on, each followed by zeros, with a pause after each sample.
fn source(count: u64, pause_millis: u64, zeros: u64) -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    for number in 0..count {
        let mut sample = vec![0; 1 + zeros as usize];
        sample[0] = number;
        node.send("out", &sample[..])?;
        if pause_millis > 0 {
            sleep(Duration::from_millis(pause_millis));
        }
    }
    Ok(())
}

/// Sends a number every 10 ms, followed by zeros, until a file is there.
fn source_until(file: &str, zeros: u64) -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    let mut sample = vec![0_u64; 1 + zeros as usize];
    while !Path::new(file).exists() {
        node.send("out", &sample[..])?;
        sample[0] += 1;
        sleep(Duration::from_millis(10));
    }
    println!("sent {}", sample[0]);
    Ok(())
}

/// Sends numbers on two outputs, each from a thread of its own: while one of them has no room, the other
/// goes on. Prints each number that was sent.
fn two_sources() -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    let handle = node.handle();
    let send = |output: &str| {
        for number in 0_u64.. {
            // It ends with the dataflow.
            if handle.send(output, &[number][..]).is_err() {
                break;
            }
            println!("{output} {number}");
            sleep(Duration::from_millis(2));
        }
    };
    std::thread::scope(|scope| {
        for output in ["held", "free"] {
            scope.spawn(move || send(output));
        }
    });
    Ok(())
}

/// Sends the numbers from 0 on. Once a file `grow` exists, sends the number of samples in it, each in
/// a block of shared memory, with a pause after each.
fn growing_source(count: u64, pause_millis: u64) -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    let mut number = 0;
    while !std::path::Path::new("grow").exists() {
        node.send("out", &[number][..])?;
        number += 1;
        sleep(Duration::from_millis(20));
    }
    for number in number..number + count {
        if node.is_stopping() {
            break;
        }
        node.send("out", &[number; 20_000][..])?;
        sleep(Duration::from_millis(pause_millis));
    }
    Ok(())
}

/// Prints the number of page faults while it writes to new memory, and whether the memory of the process is locked.
fn new_memory() -> Result<(), Box<dyn Error>> {
    let _node = Node::connect()?;
    let mut memory = vec![0u8; 4 << 20];
    let faults_before = page_faults()?;
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let faults = page_faults()? - faults_before;
    std::hint::black_box(memory);
    let status = read_to_string("/proc/self/status")?;
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let is_locked = locked.is_some_and(|amount| !amount.trim().starts_with("0 "));
    println!("locked: {is_locked}, page faults: {faults}");
    Ok(())
}

/// Page faults of this process so far.
fn page_faults() -> Result<u64, Box<dyn Error>> {
    let stat = read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").ok_or("no name")?;
    let field = |at| fields.split(' ').nth(at).map_or(Ok(0), str::parse::<u64>);
    Ok(field(7)? + field(9)?)
}

/// Repeatedly sends a value of each kind.
fn values() -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    let mut image = [10u8; 20 * 30 * 3];
    image[0] = 250;
    let metadata: Metadata = [("encoding", "bgr8")].into_iter().collect();
    while !node.is_stopping() {
        let envelope = Envelope::new().metadata(&metadata).frame("camera_optical");
        node.send_with("image", &Tensor::new(&image[..], &[20, 30, 3])?, &envelope)?;
        node.send("text", "caf\u{e9}")?;
        node.send("number", &1.5)?;
        node.send(
            "map",
            &JsonSample::new(&serde_json::json!({"x": 12, "labels": ["cup"]}))?,
        )?;
        node.send("list", &JsonSample::new(&serde_json::json!([{"x": 12}]))?)?;
        node.send("bytes", &b"\x01\x02\x03"[..])?;
        node.send("vector", &[0.5f32, -1.0, 2.0][..])?;
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Sends samples that fit the types of their outputs, and others, and prints the errors of these.
fn typed() -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    let vector = serde_json::json!({"x": 0, "y": 0.5, "z": 9.81});
    let imu = serde_json::json!({"angular_velocity": vector, "linear_acceleration": vector});
    let mut misfit = imu.clone();
    misfit["angular_velocity"]["y"] = "fast".into();
    for value in [&imu, &misfit, &imu] {
        // The last has no consumer, and the definition of `pose` is not known.
        for output in ["imu", "pose", "alone"] {
            match node.send(output, &JsonSample::new(value)?) {
                Ok(_) => {}
                Err(error @ SendError::Misfit { .. }) => println!("{error}"),
                Err(error) => return Err(error.into()),
            }
        }
    }
    let image = node.output("image")?;
    drop(image.loan::<u8>(&[4, 6, 3])?);
    for result in [
        image.send("no image").map(drop),
        image.loan::<f32>(&[24]).map(drop),
    ] {
        println!("{}", result.expect_err("not an image"));
    }
    Ok(())
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Frame<'a> {
    stamp: f64,
    #[serde(borrow)]
    image: Tensor<'a>,
    labels: Vec<String>,
}

/// Repeatedly sends a struct with a tensor.
fn frames() -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    let image = vec![10u8; 20 * 30 * 3];
    while !node.is_stopping() {
        let image = Tensor::new(&image[..], &[20, 30, 3])?;
        let frame = Frame {
            stamp: 1.5,
            image,
            labels: vec!["cup".to_owned()],
        };
        node.send("frame", &SerdeSample::new(&frame)?)?;
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Prints the values of structs with a tensor, and whether the tensor lies in the sample's memory.
fn frame_sink() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            let record = sample.record()?;
            let Frame {
                stamp,
                image,
                labels,
            } = record.deserialize()?;
            let is_view = sample
                .bytes()
                .as_ptr_range()
                .contains(&image.bytes().as_ptr());
            let sum: u64 = image
                .as_slice::<u8>()?
                .iter()
                .map(|&pixel| u64::from(pixel))
                .sum();
            println!(
                "{stamp} {:?} {sum} {labels:?} {is_view}",
                image.layout().shape()
            );
        }
    }
    Ok(())
}

/// Prints every event until its inputs close.
fn sink(pause_millis: u64) -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        print_event(&event)?;
        sleep(Duration::from_millis(pause_millis));
    }
    Ok(())
}

/// Receives samples of any kind.
fn receive() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while node.next().is_some() {}
    Ok(())
}

/// Takes no event until a file is there or the dataflow stops, and then prints every one.
fn late_sink(file: &Path) -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while !file.exists() && !node.is_stopping() {
        sleep(Duration::from_millis(5));
    }
    while let Some(event) = node.next() {
        print_event(&event)?;
    }
    Ok(())
}

/// Prints the texts that it receives.
fn texts() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if let Event::Input { id, sample } = &event {
            println!("{id} {}", sample.text()?.trim_end());
        }
    }
    Ok(())
}

/// Joins a dataflow as one of its nodes, prints every event, and sends each number on if the node
/// has an output.
fn join(node: Option<&String>, dataflow: Option<&String>) -> Result<(), Box<dyn Error>> {
    let mut node = Node::join(dataflow.map(String::as_str), node.ok_or("which node?")?)?;
    println!("joined {} {}", node.id(), node.incarnation());
    while let Some(event) = node.next() {
        print_event(&event)?;
        if let (Event::Input { sample, .. }, true) = (&event, node.outputs().len() > 0) {
            node.send("out", &sample.as_slice::<u64>()?[..1])?;
        }
    }
    Ok(())
}

/// A sink whose first process ends after `count` samples.
fn doomed_sink(count: u64, end: fn() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let mut left = if node.incarnation() == 0 {
        count
    } else {
        u64::MAX
    };
    while let Some(event) = node.next() {
        print_event(&event)?;
        left -= u64::from(matches!(event, Event::Input { .. }));
        if left == 0 {
            return end();
        }
    }
    Ok(())
}

/// Prints the dataflow's clock at every event.
fn clock() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if !matches!(event, Event::Stop { .. }) {
            println!("now {}", node.now());
        }
    }
    Ok(())
}

/// Prints when each tick was due on the dataflow's clock, with the ticks that it stands for, and all
/// other events.
fn ticks() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        match event {
            Event::Tick { due, missed, .. } => println!("tick {due} {}", missed + 1),
            event => print_event(&event)?,
        }
    }
    Ok(())
}

/// Forwards the samples that it receives.
fn relay() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            node.send("out", &sample.as_slice::<u64>()?[..1])?;
        }
    }
    Ok(())
}

/// Ends when a file is there.
fn until(file: &Path) -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    println!("runs");
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(node);
    Ok(())
}

/// Waits for Stop.
fn idle() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    for (name, value) in node.params() {
        println!("{name} is {value}");
    }
    println!("ready {}", node.incarnation());
    while let Some(event) = node.next() {
        match &event {
            Event::Param { name, value } if node.param(name)? == *value => {
                println!("PARAM {name} {value}, and so it is");
            }
            event => print_event(event)?,
        }
        if matches!(event, Event::Stop { .. }) {
            break;
        }
    }
    Ok(())
}

/// Takes no event, and fails at a stop.
fn stop_badly() -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    println!("ready");
    while !node.is_stopping() {
        sleep(Duration::from_millis(10));
    }
    Err("the disk is full".into())
}

/// Never takes an event.
fn deaf() -> Result<(), Box<dyn Error>> {
    let _node = Node::connect()?;
    println!("ready");
    loop {
        sleep(Duration::from_secs(1000));
    }
}

/// A sink whose first process hangs at its first sample.
fn hang() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    println!("ready {}", node.incarnation());
    while let Some(event) = node.next() {
        if matches!(event, Event::Input { .. }) && node.incarnation() == 0 {
            sleep(Duration::from_secs(1000));
        }
        print_event(&event)?;
    }
    Ok(())
}

/// Overwrites shared pages, as a wild pointer would: its own counters once, or the wake pages of its
/// peers until it is stopped.
fn vandal(pages: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while !matches!(node.next(), Some(Event::Input { .. })) {}
    let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
    match pages {
        "counters" => {
            for (start, bytes) in mappings("nervure-counters")? {
                memory.write_all_at(&vec![0xff; bytes], start)?;
            }
            println!("has overwritten");
            while let Some(event) = node.next() {
                if matches!(event, Event::Input { .. }) {
                    node.send("out", &1)?;
                }
            }
        }
        "wake" => {
            println!("overwrites");
            while !node.is_stopping() {
                overwrite_wake_pages(&memory)?;
            }
        }
        other => return Err(format!("what are {other} pages?").into()),
    }
    Ok(())
}

/// Overwrites its queues when they are attached, makes the file `overwritten`, and runs on.
fn vandal_of_edges() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
    let queues = loop {
        match mappings("nervure-edge") {
            Ok(queues) => break queues,
            Err(_) => sleep(Duration::from_millis(1)),
        }
    };
    for (start, bytes) in queues {
        memory.write_all_at(&vec![0xa5; bytes], start)?;
    }
    File::create("overwritten")?;
    while node.next().is_some() {}
    Ok(())
}

/// Writes zeros, which mean: no process sleeps, waits or was woken.
fn overwrite_wake_pages(memory: &File) -> Result<(), Box<dyn Error>> {
    for (start, bytes) in mappings("nervure-wake")? {
        for _ in 0..1000 {
            memory.write_all_at(&vec![0; bytes], start)?;
        }
    }
    Ok(())
}

/// Start and length of the writable mappings of memory with this name.
fn mappings(name: &str) -> Result<Vec<(u64, usize)>, Box<dyn Error>> {
    let mut found = Vec::new();
    for line in read_to_string("/proc/self/maps")?
        .lines()
        .filter(|line| line.contains(name))
    {
        let (range, rest) = line.split_once(' ').ok_or("a range")?;
        let (start, end) = range.split_once('-').ok_or("two addresses")?;
        let (start, end) = (
            u64::from_str_radix(start, 16)?,
            u64::from_str_radix(end, 16)?,
        );
        if rest.starts_with("rw") {
            found.push((start, usize::try_from(end - start)?));
        }
    }
    if found.is_empty() {
        Err(format!("no {name}").into())
    } else {
        Ok(found)
    }
}

/// A server that doubles numbers, and answers some late, out of order, or not at all.
fn serve() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let mut kept = Vec::new();
    while let Some(event) = node.next() {
        let Event::Request(request) = event else {
            print_event(&event)?;
            continue;
        };
        assert_eq!(request.service(), "double");
        match request.sample().view()?.scalar()? {
            Scalar::Integer(1) => request.fail("it is not even")?,
            Scalar::Integer(3) => drop(request),
            Scalar::Integer(5) => {
                // Late, and only once.
                sleep(Duration::from_millis(200));
                request.reply(&10)?;
                assert!(request.reply(&10).is_err());
            }
            Scalar::Integer(0) => {
                kept.push(request);
                if kept.len() == 16 {
                    // Answers in the reverse order.
                    for request in kept.drain(..).rev() {
                        request.reply(&0)?;
                    }
                }
            }
            Scalar::Integer(-1) if node.incarnation() == 0 => {
                println!("sleeps");
                sleep(Duration::from_secs(1000));
            }
            Scalar::Integer(number) => request.reply(&(number * 2))?,
            other => return Err(format!("{other:?} cannot be doubled").into()),
        }
    }
    Ok(())
}

fn doubled(answer: Result<nervure_node::Sample, CallError>) -> Result<i64, Box<dyn Error>> {
    match answer?.view()?.scalar()? {
        Scalar::Integer(number) => Ok(number),
        other => Err(format!("{other:?} is no answer").into()),
    }
}

fn call(count: u64) -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    for number in (10..).take(usize::try_from(count)?) {
        assert_eq!(doubled(node.call("twice", &number, None))?, 2 * number);
    }
    println!("{count} answers");
    let mut tickets = Vec::new();
    let full = loop {
        match node.begin_call("twice", &0) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
    };
    println!("{} at a time, then: {full}", tickets.len());
    let mut answers = 0;
    for ticket in tickets {
        let answer = loop {
            match node.take_answer(ticket) {
                Some(answer) => break answer,
                None => sleep(Duration::from_millis(1)),
            }
        };
        assert_eq!(doubled(answer)?, 0);
        answers += 1;
    }
    println!("{answers} answers");
    Ok(())
}

fn call_badly() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    for (client, number, timeout) in [
        ("thrice", 1, None),
        ("twice", 1, None),
        ("twice", 3, None),
        ("twice", 5, Some(Duration::from_millis(50))),
    ] {
        match node.call(client, &number, timeout) {
            Ok(_) => println!("an answer to {number}?"),
            Err(error) => println!("{error}"),
        }
    }
    println!(
        "7 doubled is {}, though an answer came late",
        doubled(node.call("twice", &7, None))?
    );
    Ok(())
}

/// Sends requests in a loop, and prints the results.
fn call_always() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    for number in 10.. {
        match node.call("twice", &number, Some(Duration::from_secs(1000))) {
            Err(CallError::Stopped) => break,
            Err(error) => println!("{error}"),
            Ok(_) => println!("answered"),
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Sends requests until the dataflow stops, and fails at the first that has no answer.
fn call_strictly() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    loop {
        match node.call("twice", &10, None) {
            Err(CallError::Stopped) => return Ok(()),
            answer => println!("{} is the answer", doubled(answer)?),
        }
        sleep(Duration::from_millis(1));
    }
}

/// Calls in an event loop, with events of a timer between.
async fn call_async() -> Result<(), Box<dyn Error>> {
    let (_node, events) = Node::connect()?.split();
    let mut events = events.stream()?;
    let tick = async |events: &mut EventStream| match events.next().await {
        Some(Event::Tick { .. }) => Ok(()),
        other => Err(format!("no tick but {other:?}")),
    };
    tick(&mut events).await?;
    for number in 10..20 {
        assert_eq!(
            doubled(events.call("twice", &number, None).await)?,
            2 * number
        );
        tick(&mut events).await?;
    }
    println!("10 answers");
    for (number, timeout) in [(1, None), (5, Some(Duration::from_millis(50)))] {
        match events.call("twice", &number, timeout).await {
            Ok(_) => println!("an answer to {number}?"),
            Err(error) => println!("{error}"),
        }
    }
    // A call that is dropped before its answer arrives.
    let given_up = future::or(
        async { events.call("twice", &5, None).await.map(drop) },
        async { Ok(()) },
    )
    .await;
    given_up?;
    println!(
        "7 doubled is {}",
        doubled(events.call("twice", &7, None).await)?
    );
    Ok(())
}

fn call_on() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    println!("ready");
    match node.call("twice", &-1, None) {
        Err(CallError::Stopped) => {
            println!("the dataflow stops");
            return Ok(());
        }
        Err(error) => println!("{error}"),
        Ok(_) => println!("an answer?"),
    }
    // The next process of the server is starting.
    let answer = loop {
        match node.call("twice", &21, None) {
            Err(CallError::NotRunning { .. } | CallError::Gone { .. }) => {
                sleep(Duration::from_millis(5))
            }
            answer => break answer,
        }
    };
    println!("21 doubled is {}", doubled(answer)?);
    Ok(())
}

/// Leaves with a request that is answered late. The next process of the node sends another.
fn call_again() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    if node.incarnation() == 0 {
        node.begin_call("twice", &5)?;
        std::process::abort();
    }
    println!("7 doubled is {}", doubled(node.call("twice", &7, None))?);
    Ok(())
}

fn print_event(event: &Event) -> Result<(), Box<dyn Error>> {
    match event {
        Event::Input { id, sample } => match sample.view()?.scalar() {
            Ok(Scalar::Integer(number)) => println!("{id} {number}"),
            _ => println!("{id} {}", sample.as_slice::<u64>()?[0]),
        },
        Event::InputClosed { id } => println!("INPUT_CLOSED {id}"),
        Event::Stale { id, age, count } => println!("STALE {id} {count} {}", age.as_millis()),
        Event::DeadlineMissed { id, overrun, count } => {
            println!("DEADLINE_MISSED {id} {count} {}", overrun.as_millis());
        }
        Event::NodeFailed {
            node,
            inputs,
            reason,
            ..
        } => println!("NODE_FAILED {node} {inputs:?} {reason}"),
        Event::NodeRestarted { node, inputs } => println!("NODE_RESTARTED {node} {inputs:?}"),
        Event::Stop { reason } => println!("STOP {reason}"),
        other => println!("{}", other.kind()),
    }
    Ok(())
}
