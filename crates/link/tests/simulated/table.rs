//! The table of all cells.

use std::fmt::Write;

use crate::cells::{Cell, Metric};
use crate::runs::Figures;

const COLUMNS: [Metric; 6] = [
    Metric::Delivered,
    Metric::Mean,
    Metric::P99,
    Metric::Longest,
    Metric::OfLimit,
    Metric::OnAir,
];

/// The worst of each figure over the seeds.
pub fn worst(runs: &[Figures]) -> Figures {
    let mut worst = Figures::new();
    for (metric, value) in runs.iter().flatten().copied() {
        match worst.iter_mut().find(|(known, _)| *known == metric) {
            None => worst.push((metric, value)),
            Some((_, known)) if metric.more_is_better() => *known = known.min(value),
            Some((_, known)) => *known = known.max(value),
        }
    }
    worst
}

/// The metrics that miss their targets.
pub fn missed(cell: &Cell, figures: &Figures) -> Vec<Metric> {
    let misses = |(metric, target): &(Metric, f64)| match value(figures, *metric) {
        None => true,
        Some(value) if metric.more_is_better() => value < *target,
        Some(value) => value > *target,
    };
    cell.targets
        .iter()
        .filter(|target| misses(target))
        .map(|(metric, _)| *metric)
        .collect()
}

pub fn render(rows: &[(&Cell, Figures)]) -> String {
    let mut text = String::new();
    let mut group = "";
    for (cell, figures) in rows {
        if cell.group != group {
            group = cell.group;
            let _ = write!(text, "\n## {group}\n\n| |");
            for (name, unit) in COLUMNS.map(Metric::name) {
                let _ = write!(text, " {name}{unit} |");
            }
            text.push_str(" other | verdict |\n| :--- |");
            text.push_str(&" ---: |".repeat(COLUMNS.len()));
            text.push_str(" :--- | :--- |\n");
        }
        text.push_str(&row(cell, figures));
    }
    text
}

pub fn row(cell: &Cell, figures: &Figures) -> String {
    let missed = missed(cell, figures);
    let show = |metric: Metric| {
        let Some(value) = value(figures, metric) else {
            return String::new();
        };
        let mut shown = number(metric, value);
        if let Some((_, target)) = cell.targets.iter().find(|(of, _)| *of == metric) {
            let sign = if metric.more_is_better() {
                "≥"
            } else {
                "≤"
            };
            if missed.contains(&metric) {
                shown = format!("**{shown}**");
            }
            shown = format!("{shown} ({sign} {})", number(metric, *target));
        }
        shown
    };
    let mut text = format!("| {} |", cell.name);
    for metric in COLUMNS {
        let _ = write!(text, " {} |", show(metric));
    }
    let others: Vec<_> = figures
        .iter()
        .filter(|(metric, _)| !COLUMNS.contains(metric))
        .map(|(metric, _)| format!("{} {}{}", metric.name().0, show(*metric), metric.name().1))
        .collect();
    let verdict = match (cell.targets.is_empty(), missed.is_empty()) {
        (true, _) => "",
        (false, true) => "met",
        (false, false) => "**missed**",
    };
    let _ = writeln!(text, " {} | {verdict} |", others.join("; "));
    text
}

fn value(figures: &Figures, metric: Metric) -> Option<f64> {
    figures
        .iter()
        .find(|(of, _)| *of == metric)
        .map(|(_, value)| *value)
}

fn number(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Delivered => format!("{value:.2}"),
        Metric::OnAir | Metric::Jain => format!("{value:.2}"),
        Metric::LostOfAccepted => format!("{value:.0}"),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}
