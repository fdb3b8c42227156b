//! Bindings: the machine of a role, or one machine for each instance of the dataflow.

use std::str::FromStr;

use nervure_coordinator::check_machine_name;

/// The most machines that a role is bound to. More are a slip of the keyboard.
const MAX_MACHINES: usize = 1000;

/// The most digits of a number in a range.
const MAX_DIGITS: usize = 9;

/// `ROLE=MACHINE`, or `ROLE=r01..r30`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The role.
    pub role: String,
    /// Its machines.
    pub machines: Bound,
}

/// The machines that a role is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A machine.
    One(String),
    /// The machine of each instance.
    Each(Vec<String>),
}

impl FromStr for Binding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, machines) = text
            .split_once('=')
            .ok_or("expected `ROLE=MACHINE`, such as `robot=r07`, or `robot=r01..r30`")?;
        Ok(Self {
            role: role.to_owned(),
            machines: machines.parse()?,
        })
    }
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains(',') && !text.contains("..") {
            check_machine_name(text)?;
            return Ok(Self::One(text.to_owned()));
        }
        let mut all = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                Some((first, last)) => all.extend(range(first, last)?),
                None => all.push(part.to_owned()),
            }
            if all.len() > MAX_MACHINES {
                return Err(format!("more than {MAX_MACHINES} machines"));
            }
        }
        for (index, name) in all.iter().enumerate() {
            check_machine_name(name)?;
            if all[..index].contains(name) {
                return Err(format!("`{name}` is there twice"));
            }
        }
        Ok(Self::Each(all))
    }
}

/// `r01..r30`: names that differ in the number at their end. Leading zeros are kept.
fn range(first: &str, last: &str) -> Result<Vec<String>, String> {
    let whole = || format!("`{first}..{last}`");
    let (text, from) = split(first);
    let (other, to) = split(last);
    if from.is_empty() || to.is_empty() {
        return Err(format!(
            "{} is no range: both ends need a number, as in `r01..r30`",
            whole()
        ));
    }
    if text != other {
        return Err(format!(
            "{} is no range: the ends differ before their numbers",
            whole()
        ));
    }
    let is_padded = |digits: &str| digits.len() > 1 && digits.starts_with('0');
    let have_same_width = from.len() == to.len();
    if !have_same_width && (is_padded(from) || is_padded(to)) {
        return Err(format!(
            "{} is no range: one end has leading zeros, and the other has another number of digits",
            whole()
        ));
    }
    let number = |digits: &str| match digits.len() <= MAX_DIGITS {
        true => digits.parse::<usize>().map_err(|error| error.to_string()),
        false => Err(format!("{digits} is too large for the end of a range")),
    };
    let (from_number, to_number) = (number(from)?, number(to)?);
    if from_number > to_number {
        return Err(format!("{} is empty: it ends before it begins", whole()));
    }
    if to_number - from_number >= MAX_MACHINES {
        return Err(format!("{} has more than {MAX_MACHINES} machines", whole()));
    }
    let width = match have_same_width {
        true => from.len(),
        false => 1,
    };
    Ok((from_number..=to_number)
        .map(|number| format!("{text}{number:0width$}"))
        .collect())
}

/// A name before its last digits, and these.
fn split(name: &str) -> (&str, &str) {
    let text = name.trim_end_matches(|last: char| last.is_ascii_digit());
    name.split_at(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(text: &str) -> Vec<String> {
        match text.parse() {
            Ok(Bound::Each(all)) => all,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn one_name_is_one_machine() {
        let binding: Binding = "robot=r07".parse().unwrap();
        assert_eq!(binding.role, "robot");
        assert_eq!(binding.machines, Bound::One("r07".to_owned()));
    }

    #[test]
    fn a_range_keeps_its_leading_zeros() {
        assert_eq!(each("r08..r11"), ["r08", "r09", "r10", "r11"]);
        assert_eq!(each("r8..r11"), ["r8", "r9", "r10", "r11"]);
        assert_eq!(each("r098..r101"), ["r098", "r099", "r100", "r101"]);
        assert_eq!(each("lab-2.pi3..lab-2.pi4"), ["lab-2.pi3", "lab-2.pi4"]);
        assert_eq!(each("r0..r1"), ["r0", "r1"]);
        assert_eq!(each("r01..r30").len(), 30);
    }

    #[test]
    fn a_list_may_have_names_and_ranges() {
        assert_eq!(each("r01,spare,r05..r06"), ["r01", "spare", "r05", "r06"]);
        assert_eq!(each("r01..r01"), ["r01"], "an instance, not a machine");
    }

    #[test]
    fn a_range_that_makes_no_sense_is_refused_with_the_reason() {
        for (text, reason) in [
            ("r30..r01", "`r30..r01` is empty: it ends before it begins"),
            ("r1..s9", "the ends differ before their numbers"),
            ("robot..r9", "both ends need a number"),
            ("r1..", "both ends need a number"),
            ("r1..r05", "one end has leading zeros"),
            ("r01..r100", "one end has leading zeros"),
            ("r1..r1001", "has more than 1000 machines"),
            ("r1..r900,s1..s900", "more than 1000 machines"),
            ("r1..r9999999999", "too large"),
            ("r01,r02,r01", "`r01` is there twice"),
            ("r01..r03,r02", "`r02` is there twice"),
            ("r01,", "is no name for a machine"),
            ("r 1..r 3", "is no name for a machine"),
            ("r 1", "is no name for a machine"),
        ] {
            let error = text.parse::<Bound>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!("robot".parse::<Binding>().is_err());
    }
}
