//! Outcome of the samples that cross machines.

use std::collections::BTreeMap;

use nervure_protocol::{daemon_to_daemon::StreamReport, loss::LossCause};

/// Merges the reports of both ends by topic and machine: the sender reports unsent samples, the
/// receiver samples that it could not publish, and latencies.
pub fn merged<'r>(reports: impl IntoIterator<Item = &'r StreamReport>) -> Vec<StreamReport> {
    let mut merged: BTreeMap<(&str, &str), StreamReport> = BTreeMap::new();
    for report in reports {
        let place = (report.topic.as_str(), report.machine.as_str());
        merged.entry(place).or_default().add(report);
    }
    merged.into_values().collect()
}

/// `3 queue, 1 lifespan`
pub fn causes(report: &StreamReport) -> String {
    let lost = report.lost.iter();
    let lost: Vec<_> = lost
        .map(|(cause, count)| format!("{count} {cause}"))
        .collect();
    lost.join(", ")
}

/// The causes of the losses, each with its remedy.
pub fn explanation(report: &StreamReport) -> String {
    let lost: u64 = report.lost.values().sum();
    let mut text = format!(
        "{} -> {}: {lost} lost on the way\n",
        report.topic, report.machine
    );
    for (cause, count) in &report.lost {
        let (what, remedy) = explain(cause);
        text += &format!("  {count}: {what}\n      {remedy}\n");
    }
    text
}

/// Explains a cause of loss, and names a remedy.
pub fn explain(cause: &LossCause) -> (&str, &'static str) {
    const SEND_LESS: &str =
        "send less: smaller or fewer samples; `queue_policy: block` makes the producer wait";
    match cause {
        LossCause::Queue => (
            "the queue before the link was full, because the link is slower than the producer",
            SEND_LESS,
        ),
        LossCause::Overwritten => (
            "newer samples came before the link had room: it was slower than the producer, or away",
            "send less, or use `queue_policy: drop_oldest` with a larger `queue_size` on that input, if old samples still count",
        ),
        LossCause::Lifespan => (
            "older than the `lifespan` before they had arrived",
            "send less, or use a longer `qos.lifespan` on that input",
        ),
        LossCause::Superseded => (
            "a newer sample could be delivered first",
            "use `queue_policy: drop_oldest` with a larger `queue_size` on that input, if old samples still count",
        ),
        LossCause::NotRepaired => (
            "packets were lost, and the input is best effort",
            "use `qos: {reliability: reliable}` on that input",
        ),
        LossCause::Refused => (
            "the other machine had no memory for them",
            "its consumers fall behind: use a smaller `queue_size` on that input",
        ),
        LossCause::Unconfirmed => (
            "in flight when the connection ended: whether they arrived is not known",
            "a daemon or machine was restarted, or a connection was given up",
        ),
        LossCause::NotSent => ("waited for the link when the dataflow ended", SEND_LESS),
        LossCause::Failed => (
            "could not be encoded, sent or published",
            "the daemon's messages on that machine have the reason",
        ),
        LossCause::Other(name) => (name, "this command is older than the daemon"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(machine: &str, lost: &[(LossCause, u64)]) -> StreamReport {
        StreamReport {
            topic: "camera/image".to_owned(),
            machine: machine.to_owned(),
            accepted: 9,
            delivered: 6,
            not_taken: 0,
            is_lossless: false,
            lost: lost.iter().cloned().collect(),
            latency: None,
        }
    }

    #[test]
    fn the_reports_of_both_machines_are_one_row() {
        let reports = [
            report("edge", &[(LossCause::Lifespan, 2)]),
            report("base", &[]),
            StreamReport {
                accepted: 0,
                delivered: 0,
                ..report("edge", &[(LossCause::Failed, 1)])
            },
        ];
        let merged = merged(&reports);
        assert_eq!(
            merged,
            [
                report("base", &[]),
                report("edge", &[(LossCause::Failed, 1), (LossCause::Lifespan, 2)])
            ]
        );
        assert_eq!(
            explanation(&merged[1]),
            "\
camera/image -> edge: 3 lost on the way
  1: could not be encoded, sent or published
      the daemon's messages on that machine have the reason
  2: older than the `lifespan` before they had arrived
      send less, or use a longer `qos.lifespan` on that input
"
        );
    }
}
