//! Definitions of common ROS 2 messages, for bags without any: SQLite files of Humble and earlier
//! releases.

/// Messages of `common_interfaces` and other packages in Humble, as one definition text: each after
/// a line of `=` and a line with its name.
const MESSAGES: &str = include_str!("../schemas/ros2_messages.txt");

/// The definition of a message (`package/msg/Name`) and of the messages it may use; `None` if
/// unknown.
pub(crate) fn of(name: &str) -> Option<String> {
    const SEPARATOR: &str = "===\nMSG: ";
    let wanted = name.replacen("/msg/", "/", 1);
    let is_wanted = |section: &&str| section.lines().next() == Some(&wanted);
    let (own, others): (Vec<&str>, Vec<&str>) = MESSAGES
        .split(SEPARATOR)
        .filter(|section| !section.is_empty())
        .partition(is_wanted);
    let (_, fields) = own.first()?.split_once('\n')?;
    let others = others.into_iter().flat_map(|section| [SEPARATOR, section]);
    Some(std::iter::once(fields).chain(others).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ros::Definition;

    #[test]
    fn every_definition_can_be_parsed() {
        let names = MESSAGES
            .lines()
            .filter_map(|line| line.strip_prefix("MSG: "));
        let mut count = 0;
        for name in names {
            let definition = of(name).unwrap();
            Definition::parse(name, definition.as_bytes()).unwrap();
            count += 1;
        }
        assert_eq!(count, 138);
        assert!(
            of("sensor_msgs/msg/Image")
                .unwrap()
                .starts_with("std_msgs/Header header\nuint32 height\n")
        );
        assert!(of("my_msgs/msg/Own").is_none());
    }
}
