//! `nervure topic echo`: shows samples as they arrive.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_inspect::{
    format,
    observing::{Observing, Seen},
    topics::select_topics,
};
use nervure_node::{
    Sample, Value as MetadataValue,
    message::{DType, Layout},
};
use serde_json::{Value, json};

use super::{
    arguments::EchoArguments,
    field::FieldReader,
    lower_priority, tensor,
    value::{self, Limits, Shown},
};
use crate::{
    failure::Failure,
    output::{self, plain_text},
};

/// Queue depth of the observer: a terminal cannot show more.
const QUEUE_DEPTH: u32 = 8;

/// Interval between reports of missed samples.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between reports of what samples of other machines cost on the link.
const COST_INTERVAL: Duration = Duration::from_secs(10);

/// Shows samples until Ctrl-C, the end of the dataflow, or `--count`.
pub fn echo(arguments: &EchoArguments) -> Result<ExitCode, Failure> {
    let selected = select_topics(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        "echo",
    )?;
    if let Some(folder) = &arguments.save {
        fs::create_dir_all(folder).map_err(|error| cannot_save(folder, &error))?;
    }
    lower_priority();
    let mut observing = Observing::open(selected, QUEUE_DEPTH, "echo")?;
    let limits = if arguments.full {
        Limits::NONE
    } else {
        Limits::SHORT
    };
    let mut field = arguments.field.as_ref().map(FieldReader::new);
    let mut missed = MissedSamples::default();
    let mut cost_at = Instant::now() + COST_INTERVAL;
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let end = loop {
        if left == 0 {
            break Ok(ExitCode::SUCCESS);
        }
        match observing.next() {
            Some(Ok(Seen::Sample {
                topic,
                sample,
                missed: more,
                now,
            })) => {
                missed.add(more);
                if let Some(folder) = &arguments.save {
                    let path = save(folder, &topic, &sample)?;
                    note!("wrote {}", path.display());
                }
                let more = arguments.target.json.then_some(more);
                match &mut field {
                    Some(field) => {
                        let value = field.read(&sample, limits)?;
                        show_field(&topic, &sample, &value, more)?;
                    }
                    None => show(&topic, &sample, limits, more, now)?,
                }
                left -= 1;
            }
            Some(Ok(Seen::Ended { topic, is_last })) => {
                if is_last {
                    note!("{topic}: the node has ended");
                }
            }
            Some(Ok(Seen::Note(text))) => note!("{text}"),
            Some(Err(error)) => break Err(error.into()),
            None => break Ok(ExitCode::SUCCESS),
        }
        if Instant::now() >= cost_at {
            cost_at = Instant::now() + COST_INTERVAL;
            observing
                .cost()
                .into_iter()
                .for_each(|cost| note!("{cost}"));
        }
    };
    missed.report();
    observing
        .cost()
        .into_iter()
        .for_each(|cost| note!("{cost}"));
    end
}

/// Counts missed samples, and reports them from time to time.
struct MissedSamples {
    count: u64,
    reported_at: Instant,
}

impl Default for MissedSamples {
    fn default() -> Self {
        Self {
            count: 0,
            reported_at: Instant::now(),
        }
    }
}

impl MissedSamples {
    fn add(&mut self, missed: u64) {
        self.count += missed;
        if self.count > 0 && self.reported_at.elapsed() >= REPORT_INTERVAL {
            self.report();
        }
    }

    fn report(&mut self) {
        if self.count > 0 {
            let missed = format::count(self.count as usize, "sample");
            note!("skipped {missed}: they arrived faster than they can be shown");
            self.count = 0;
            self.reported_at = Instant::now();
        }
    }
}

/// Shows a sample as text, or as JSON with the number of samples that were missed before it.
fn show(
    topic: &str,
    sample: &Sample,
    limits: Limits,
    missed: Option<u64>,
    now: i64,
) -> Result<(), Failure> {
    let text = match missed {
        Some(missed) => {
            let mut object = json(topic, sample, limits, now);
            object["missed"] = missed.into();
            format!("{object}\n")
        }
        None => text(topic, sample, limits, now),
    };
    output::write_or_end(&text)
}

/// Shows a value of a sample as a line of text, or as JSON with the number of samples that were missed
/// before it.
fn show_field(
    topic: &str,
    sample: &Sample,
    value: &Shown,
    missed: Option<u64>,
) -> Result<(), Failure> {
    let header = sample.header();
    let text = match missed {
        Some(missed) => json!({
            "topic": topic,
            "sequence": header.sequence,
            "stamp_utc_nanos": header.stamp,
            "value": value.json(),
            "missed": missed,
        })
        .to_string(),
        None => plain_text(&value.to_string()),
    };
    output::write_or_end(&format!("{text}\n"))
}

fn text(topic: &str, sample: &Sample, limits: Limits, now: i64) -> String {
    let header = sample.header();
    let mut text = format!(
        "{topic} #{}, {} old, {} on the way",
        header.sequence,
        format::latency(Some(nanos(sample.age(now)))),
        format::latency(Some(nanos(sample.latency()))),
    );
    if header.incarnation > 0 {
        text.push_str(&format!(", start {}", header.incarnation));
    }
    if let Some(frame) = sample.frame() {
        text.push_str(&format!(", frame {}", plain_text(&frame)));
    }
    text.push('\n');
    match value::shown(sample, limits) {
        Ok(shown) => text.push_str(&format!("  {}\n", plain_text(&shown.to_string()))),
        Err(error) => text.push_str(&format!("  unreadable: {error}\n")),
    }
    let metadata = sample.metadata().unwrap_or_default();
    for (name, value) in metadata.iter() {
        let shown = value::shown_metadata(value, limits);
        text.push_str(&format!(
            "  {}: {}\n",
            plain_text(name),
            plain_text(&shown.to_string())
        ));
    }
    text
}

fn json(topic: &str, sample: &Sample, limits: Limits, now: i64) -> Value {
    let header = sample.header();
    let metadata = sample.metadata().unwrap_or_default();
    let metadata: serde_json::Map<_, _> = metadata
        .iter()
        .map(|(name, value)| (name.to_owned(), value::shown_metadata(value, limits).json()))
        .collect();
    let mut object = json!({
        "topic": topic,
        "sequence": header.sequence,
        "incarnation": header.incarnation,
        "stamp_utc_nanos": header.stamp,
        "age_nanos": nanos(sample.age(now)),
        "latency_nanos": nanos(sample.latency()),
        "bytes": sample.bytes().len(),
        "frame": sample.frame(),
        "metadata": metadata,
    });
    match value::shown(sample, limits) {
        Ok(shown) => object["value"] = shown.json(),
        Err(error) => object["error"] = error.to_string().into(),
    }
    object
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes a sample to a file in the folder, named after topic, incarnation and sequence number:
/// `camera.image-0-000041.png`.
fn save(folder: &Path, topic: &str, sample: &Sample) -> Result<PathBuf, Failure> {
    let header = sample.header();
    let stem = format!(
        "{}-{}-{:06}",
        topic.replace('/', "."),
        header.incarnation,
        header.sequence
    );
    let write = |extension: &str, write: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>| {
        let path = folder.join(format!("{stem}.{extension}"));
        let mut file =
            BufWriter::new(File::create(&path).map_err(|error| cannot_save(&path, &error))?);
        write(&mut file)
            .and_then(|()| file.flush())
            .map_err(|error| cannot_save(&path, &error))?;
        Ok(path)
    };
    match sample.layout() {
        Ok(Layout::Tensor(layout)) if sample.view().is_ok() => {
            let metadata = sample.metadata().unwrap_or_default();
            let is_bgr = matches!(metadata.get("encoding"), Some(MetadataValue::Text(name)) if name.to_lowercase().starts_with("bgr"));
            if value::is_image(layout) && *layout.dtype() == DType::U8 {
                write("png", &|file| {
                    tensor::write_png(file, layout, sample.bytes(), is_bgr)
                })
            } else {
                write("npy", &|file| {
                    tensor::write_npy(file, layout, sample.bytes())
                })
            }
        }
        _ => write("json", &|file| {
            writeln!(file, "{}", json(topic, sample, Limits::NONE, header.stamp))
        }),
    }
}

fn cannot_save(path: &Path, error: &io::Error) -> Failure {
    Failure::internal(format!("cannot write `{}`", path.display())).because(error)
}
