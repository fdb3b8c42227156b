//! Definitions of common ROS 2 messages, for bags without any: SQLite files of Humble and earlier
//! releases.

use std::sync::LazyLock;

use crate::sections::{Format, Sections};

/// Messages of `common_interfaces` and other packages in Humble, as one definition text: each after
/// a line of `=` and a line with its name. Those of `service_msgs` are of Iron.
const MESSAGES: &str = include_str!("../ros/humble.txt");

/// The messages of Humble.
pub fn humble() -> &'static Sections {
    static KNOWN: LazyLock<Sections> = LazyLock::new(|| {
        Sections::parse("", MESSAGES.as_bytes(), Format::Message).expect("the text is valid")
    });
    &KNOWN
}

/// The messages that are the same in all distributions, and parts of generated types. Some writers
/// omit them.
pub fn unchanged() -> &'static Sections {
    const NAMES: [&str; 5] = [
        "action_msgs/",
        "builtin_interfaces/",
        "service_msgs/",
        "std_msgs/Header",
        "unique_identifier_msgs/",
    ];
    static KNOWN: LazyLock<Sections> =
        LazyLock::new(|| humble().only(|name| NAMES.iter().any(|known| name.starts_with(known))));
    &KNOWN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Library;

    #[test]
    fn every_definition_can_be_used() {
        let names = MESSAGES
            .lines()
            .filter_map(|line| line.strip_prefix("MSG: "));
        let mut count = 0;
        for name in names {
            Library::new(&[humble()]).definition(name).unwrap();
            count += 1;
        }
        assert_eq!(count, 139);
        let image = Library::new(&[humble()]).definition("sensor_msgs/Image");
        assert_eq!(image.unwrap().fields.len(), 7);
        assert!(!humble().has("my_msgs/Own"));
        assert!(unchanged().has("action_msgs/srv/CancelGoal_Event"));
        assert!(unchanged().has("std_msgs/Header") && !unchanged().has("std_msgs/String"));
    }
}
