//! The reference page of dataflow files.

use std::fmt::Write;

use crate::diagnostic::Code;
use crate::keys::{Key, LEVELS, Level, Status};

/// The reference page of dataflow files, in Markdown: every key and every code of a finding.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for level in LEVELS {
        // Writing to a string does not fail.
        let _ = write!(page, "\n## {}\n\n", heading(level));
        usable_keys(level, &mut page);
        other_keys(level, &mut page);
    }
    page.push_str(
        "\n## Findings\n\nThe codes of errors and warnings are stable. `--json` prints findings as data.\n\n",
    );
    page.push_str("| code | meaning |\n| --- | --- |\n");
    for code in Code::ALL {
        let _ = writeln!(page, "| `{}` | {} |", code.as_str(), code.meaning());
    }
    page
}

const INTRODUCTION: &str = "# Dataflow files

A dataflow file is YAML. It lists the nodes with their inputs and outputs:

```yaml
nodes:
  - id: camera
    path: camera.py
    inputs: {tick: nervure/timer/hz/30}
    outputs: [image]
  - id: detector
    path: ./detector
    inputs:
      image: {source: camera/image, queue_size: 1}
```

`nervure validate FILE` checks a file, `nervure schema` prints a JSON schema for editors. This page is generated from the
table of keys in `crates/dataflow`; a test keeps it up to date.

Names have 1 to 64 characters: letters (a-z, A-Z), digits, `_`, `-` and `.`. The first is neither `-` nor `.`. Names of
inputs and outputs may consist of several such names with `/` between them, 129 characters together. In words such as
`on-failure` and `drop_oldest`, `-` and `_` are the same.

Durations have a unit, here and on the command line: `500ns`, `500us`, `15ms`, `2s`, `10min`, `1h`. Keys that dora has as
well also accept a number of seconds without a unit. Sizes have a unit: `B`, `kB`, `kiB`, `MB`, `MiB`, `GB`, `GiB`, `TB`
or `TiB`, in upper or lower case. 1 MB is 10^6 bytes, 1 MiB is 2^20 bytes.
";

fn heading(level: &Level) -> String {
    let mut letters = level.name.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

fn usable_keys(level: &Level, page: &mut String) {
    page.push_str("| key | value | |\n| --- | --- | --- |\n");
    for key in level.usable() {
        let required = match key.status {
            Status::Required => " **Required.**".to_owned(),
            Status::RequiredUnless(others) => {
                let others: Vec<String> = others
                    .iter()
                    .filter(|other| level.find(other).is_some_and(Key::is_usable))
                    .map(|other| format!("`{other}`"))
                    .collect();
                format!(" **Required**, except with {}.", others.join(" or "))
            }
            _ => String::new(),
        };
        let aliases: String = key
            .aliases
            .iter()
            .map(|alias| format!(" (or `{alias}`)"))
            .collect();
        let value = key.shape.describe().replace('|', "\\|");
        let _ = writeln!(
            page,
            "| `{}`{aliases} | {value} | {}{required} |",
            key.name, key.doc
        );
    }
}

fn other_keys(level: &Level, page: &mut String) {
    let of_status = |status: fn(&Status) -> Option<&'static str>| {
        level
            .keys
            .iter()
            .filter_map(move |key| status(&key.status).map(|hint| (key, hint)))
    };
    let later = of_status(|status| {
        if let Status::Later(hint) = status {
            Some(hint)
        } else {
            None
        }
    });
    let unsupported = of_status(|status| {
        if let Status::Unsupported(hint) = status {
            Some(hint)
        } else {
            None
        }
    });
    let ignored = of_status(|status| {
        if let Status::Ignored(reason) = status {
            Some(reason)
        } else {
            None
        }
    });
    for (title, column, keys) in [
        (
            "Known from dora and without an effect here; a warning names the reason:",
            "reason",
            ignored.collect::<Vec<_>>(),
        ),
        (
            "Reserved for later versions; refused until then:",
            "instead",
            later.collect(),
        ),
        (
            "Known from dora and other tools; not supported:",
            "instead",
            unsupported.collect(),
        ),
    ] {
        if keys.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "\n{title}\n\n| key | meant for | {column} |\n| --- | --- | --- |\n"
        );
        for (key, hint) in keys {
            let _ = writeln!(
                page,
                "| `{}` | {} | {hint} |",
                key.name,
                key.doc.trim_end_matches('.')
            );
        }
    }
}
