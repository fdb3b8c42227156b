//! The nodes of the tests: `conformance ROLE FILE`. They write their events to the file.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use dora_node_api::dora_core::config::DataId;
use dora_node_api::merged::{MergeExternalSend, MergedEvent};
use dora_node_api::{
    DoraNode, Event, EventStream, IntoArrow, MetadataParameters, Parameter, TryRecvError,
    get_string_param,
};
use eyre::{Context, OptionExt, Result, bail};
use futures::StreamExt;
use futures::executor::block_on;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(role), Some(file)) = (arguments.next(), arguments.next()) else {
        bail!("usage: conformance ROLE FILE");
    };
    let seen = File::create(file)?;
    let (node, events) = DoraNode::init_from_env().context("failed to init")?;
    match role.as_str() {
        "source" => source(node, events, seen),
        "sink" => sink(events, seen),
        "async" => block_on(receive_async(events, seen)),
        "client" => block_on(client(node, events, seen)),
        "server" => server(node, events),
        "sender" => sender(node, events),
        "eight" => eight(node, events, seen),
        "late" => late(events, seen),
        "witness" => witness(events, seen),
        "pauses" => pauses(node, events),
        "reporter" => reporter(node, events, seen),
        "closer" => closer(node, events),
        "half" => half(node, events, seen),
        other => bail!("unknown role {other}"),
    }
}

/// Sends each kind of value at the first tick, and ends.
fn source(mut node: DoraNode, mut events: EventStream, mut seen: File) -> Result<()> {
    let Some(Event::Input { id, metadata, data }) = events.recv() else {
        bail!("no tick");
    };
    writeln!(seen, "{id} {} {}", data.type_name(), data.len())?;
    writeln!(seen, "{} restarts {}", node.id(), node.restart_count())?;
    writeln!(seen, "{:?}", node.node_config())?;
    let age = node.timestamp().get_diff_duration(&metadata.timestamp());
    writeln!(seen, "tick is recent: {}", age < Duration::from_secs(10))?;

    let parameters = MetadataParameters::from([
        ("encoding".to_owned(), Parameter::String("mono8".to_owned())),
        ("width".to_owned(), Parameter::Integer(4)),
    ]);
    node.send_output("text".into(), parameters, "hello".into_arrow())?;
    node.send_output("numbers".into(), Default::default(), vec![1.5_f32, 2.5])?;
    node.send_output("numbers".into(), Default::default(), 7_u64)?;
    let bytes = DataId::from("bytes".to_owned());
    node.send_output_raw(bytes.clone(), Default::default(), 3, |out| {
        out.copy_from_slice(&[1, 2, 3]);
    })?;
    node.send_output_bytes(bytes.clone(), Default::default(), 2, &[4, 5])?;
    node.send_output_bytes(bytes.clone(), Default::default(), 0, &[])?;
    let wrong = node.send_output_bytes(bytes.clone(), Default::default(), 9, &[4, 5]);
    writeln!(seen, "{}", wrong.unwrap_err())?;
    node.send_output("undeclared".into(), Default::default(), 1_u8)?;
    writeln!(
        seen,
        "undeclared is valid: {}",
        node.validate_output(&"undeclared".into())
    )?;
    let unknown = node.close_outputs(vec!["undeclared".into()]);
    writeln!(seen, "{}", unknown.unwrap_err())?;
    node.close_outputs(vec![bytes.clone()])?;
    node.send_output_bytes(bytes, Default::default(), 2, &[6, 6])?;
    Ok(())
}

/// Writes each event, by the blocking calls.
fn sink(mut events: EventStream, mut seen: File) -> Result<()> {
    while let Some(event) = events.recv() {
        writeln!(seen, "{}", described(event))?;
    }
    let closed = matches!(events.try_recv(), Err(TryRecvError::Closed));
    writeln!(seen, "closed: {closed} {}", events.drain().is_none())?;
    Ok(())
}

/// Writes each event, by the async calls and merged with another stream.
async fn receive_async(mut events: EventStream, mut seen: File) -> Result<()> {
    if let Some(event) = events.recv_async().await {
        writeln!(seen, "{}", described(event))?;
    }
    if let Some(event) = events.next().await {
        writeln!(seen, "{}", described(event))?;
    }
    let mut merged = events.merge_external_send(futures::stream::iter([1, 2]));
    while let Some(event) = merged.next().await {
        match event {
            MergedEvent::Dora(event) => writeln!(seen, "{}", described(event))?,
            MergedEvent::External(number) => writeln!(seen, "external {number}")?,
        }
    }
    Ok(())
}

/// Sends a request, and waits for its response among other inputs.
async fn client(mut node: DoraNode, mut events: EventStream, mut seen: File) -> Result<()> {
    for event in [
        events.recv_timeout(Duration::from_millis(1)),
        events.recv_async_timeout(Duration::from_millis(1)).await,
    ] {
        writeln!(seen, "{event:?} {:?}", events.try_recv())?;
    }
    let id = node.send_service_request("request".into(), Default::default(), 20_i64)?;
    let server = "server".to_owned().into();
    let response = events.recv_service_response(&id, &server, Duration::from_secs(30));
    let Event::Input { data, metadata, .. } = response.await? else {
        bail!("the response is no input");
    };
    let is_same = get_string_param(&metadata.parameters, "request_id") == Some(&id);
    writeln!(seen, "{} {is_same}", i64::try_from(&data)?)?;
    let late = events.recv_service_response("other", &server, Duration::from_secs(30));
    writeln!(seen, "{}", late.await.unwrap_err())?;
    Ok(())
}

/// Answers one request with its double.
fn server(mut node: DoraNode, mut events: EventStream) -> Result<()> {
    while let Some(event) = events.recv() {
        if let Event::Input { metadata, data, .. } = event {
            let doubled = 2 * i64::try_from(&data)?;
            node.send_service_response("response".into(), metadata.parameters, doubled)?;
            break;
        }
    }
    Ok(())
}

/// Sends, and never receives.
fn sender(mut node: DoraNode, events: EventStream) -> Result<()> {
    drop(events);
    for number in 0..3_u8 {
        node.send_output("numbers".into(), Default::default(), number)?;
    }
    Ok(())
}

/// Sends eight numbers, writes its process id, and ends when it has to.
fn eight(mut node: DoraNode, mut events: EventStream, mut seen: File) -> Result<()> {
    events.recv();
    for number in 0..8_u8 {
        node.send_output("numbers".into(), Default::default(), vec![number])?;
    }
    writeln!(seen, "{}", std::process::id())?;
    while events.recv().is_some() {}
    Ok(())
}

/// Writes a line when it has received eight numbers.
fn witness(mut events: EventStream, mut seen: File) -> Result<()> {
    for _ in 0..8 {
        events.recv().ok_or_eyre("too few numbers")?;
    }
    writeln!(seen, "all")?;
    Ok(())
}

/// Receives a number, and the next ones when their sender has ended.
fn late(mut events: EventStream, mut seen: File) -> Result<()> {
    let first = events.recv().ok_or_eyre("no first number")?;
    writeln!(seen, "{}", described(first))?;
    let sender = std::env::var("SENDER").context("no SENDER")?;
    await_end(&sender);
    // The order to stop was sent to both at the same time. Nothing shows that it has arrived here.
    std::thread::sleep(Duration::from_millis(100));
    sink(events, seen)
}

/// Waits until the process whose id is in a file has ended.
fn await_end(file: &str) {
    let has_ended = || match std::fs::read_to_string(file) {
        Ok(id) if id.ends_with('\n') => !Path::new("/proc").join(id.trim()).exists(),
        _ => false,
    };
    while !has_ended() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends nothing for longer than the receiver's `input_timeout`, then a number each time that the
/// receiver has reported the input as closed.
fn pauses(mut node: DoraNode, mut events: EventStream) -> Result<()> {
    events.recv();
    let quiet = events.recv_timeout(Duration::from_millis(2500));
    if !matches!(quiet, Some(Event::Error(_))) {
        bail!("the input is closed before its first number: {quiet:?}");
    }
    for number in 0..3_u8 {
        node.send_output("numbers".into(), Default::default(), vec![number])?;
        while !is_input(&events.recv(), "closed") {}
    }
    Ok(())
}

/// Writes each event, and sends an answer to each number and to each closed input.
fn reporter(mut node: DoraNode, mut events: EventStream, mut seen: File) -> Result<()> {
    while let Some(event) = events.recv() {
        let answer = match event {
            Event::Input { .. } => Some("got"),
            Event::InputClosed { .. } => Some("closed"),
            _ => None,
        };
        writeln!(seen, "{}", described(event))?;
        if let Some(output) = answer {
            node.send_output(output.into(), Default::default(), vec![0_u8])?;
        }
    }
    Ok(())
}

/// Sends a number to each of two outputs, and closes it.
fn closer(mut node: DoraNode, mut events: EventStream) -> Result<()> {
    for output in ["a", "b"] {
        let output = DataId::from(output.to_owned());
        node.send_output(output.clone(), Default::default(), vec![1_u8])?;
        while !is_input(&events.recv(), "got") {}
        node.close_outputs(vec![output])?;
        while !is_input(&events.recv(), "closed") {}
    }
    // Only now, so that the receiver's events are none of the node's end.
    while events.recv().is_some() {}
    Ok(())
}

/// Sends a number, drops its sending half, and continues to receive.
fn half(mut node: DoraNode, mut events: EventStream, mut seen: File) -> Result<()> {
    node.send_output("numbers".into(), Default::default(), vec![1_u8])?;
    while !is_input(&events.recv(), "got") {}
    drop(node);
    while let Some(event) = events.recv() {
        writeln!(seen, "{}", described(event))?;
    }
    Ok(())
}

fn is_input(event: &Option<Event>, name: &str) -> bool {
    matches!(event, Some(Event::Input { id, .. }) if id.as_str() == name)
}

fn described(event: Event) -> String {
    match event {
        Event::Input { id, metadata, data } => {
            let values = match data.type_name().as_str() {
                "Utf8" => String::try_from(&data).unwrap(),
                "UInt8" => format!("{:?}", Vec::<u8>::try_from(&data).unwrap()),
                "UInt64" => u64::try_from(&data).unwrap().to_string(),
                "Float32" => format!("{:?}", <&[f32]>::try_from(&data).unwrap()),
                _ => String::new(),
            };
            format!(
                "{id}: {} {values} {:?}",
                data.type_name(),
                metadata.parameters
            )
        }
        other => format!("{other:?}"),
    }
}
