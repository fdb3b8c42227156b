//! The nodes of the tests: `conformance ROLE FILE`. They write what they see to the file.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use dora_node_api::dora_core::config::DataId;
use dora_node_api::merged::{MergeExternalSend, MergedEvent};
use dora_node_api::{
    DoraNode, Event, EventStream, IntoArrow, MetadataParameters, Parameter, TryRecvError,
    get_string_param,
};
use eyre::{Context, Result, bail};
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
    let server = "server".into();
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

/// Doubles what is requested, once.
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
