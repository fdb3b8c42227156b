//! The table of the samples that cross machines.

use nervure_inspect::{format, streams::causes};
use nervure_protocol::daemon_to_daemon::StreamReport;

use crate::table::{Align, Table};

/// A row for each.
pub fn table(reports: &[StreamReport]) -> Table {
    let mut table = Table::new(&[
        ("over the link", Align::Left),
        ("sent", Align::Right),
        ("delivered", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
        ("+-", Align::Right),
        ("lost", Align::Left),
    ]);
    for report in reports {
        let latency = |of: fn(&_) -> u64| format::latency(report.latency.as_ref().map(of));
        table.row(vec![
            format!("{} -> {}", report.topic, report.machine),
            report.accepted.to_string(),
            report.delivered.to_string(),
            latency(|it| it.p50_nanos),
            latency(|it| it.p99_nanos),
            latency(|it| it.max_nanos),
            latency(|it| it.error_nanos),
            match report.lost.is_empty() {
                true => "0".to_owned(),
                false => causes(report),
            },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use nervure_protocol::loss::LossCause;

    use super::*;

    #[test]
    fn a_row_has_the_losses_with_their_causes() {
        let report = |machine: &str, lost: &[(LossCause, u64)]| StreamReport {
            topic: "camera/image".to_owned(),
            machine: machine.to_owned(),
            accepted: 9,
            delivered: 6,
            not_taken: 0,
            is_lossless: false,
            lost: lost.iter().cloned().collect(),
            latency: None,
        };
        let reports = [
            report("base", &[]),
            report("edge", &[(LossCause::Failed, 1), (LossCause::Lifespan, 2)]),
        ];
        assert_eq!(
            table(&reports).render(None),
            "\
OVER THE LINK         SENT  DELIVERED  P50  P99  MAX  +-  LOST
camera/image -> base     9          6    -    -    -   -  0
camera/image -> edge     9          6    -    -    -   -  1 failed, 2 lifespan
"
        );
    }
}
