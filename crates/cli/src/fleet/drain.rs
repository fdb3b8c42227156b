//! `nervure stop --drain` of a dataflow on several machines: its parts drain together.

use nervure_inspect::places::{self, PartKeeper};

use crate::{
    domain,
    failure::Failure,
    inspect::{arguments::StopArguments, keeper_end},
};

/// Lets the sources of all parts end first, and waits until every part has ended.
pub fn drain(dataflow: &str, arguments: &StopArguments) -> Result<(), Failure> {
    let found = places::find(Some(dataflow))?;
    let mut parts = Vec::new();
    for part in &found.parts {
        match &part.keeper {
            PartKeeper::At(place, _) => parts.push((place, place.connect("stop")?)),
            PartKeeper::Unreachable(away) => {
                let (machine, away) = (&away.machine, away.text());
                let text = format!("{dataflow} cannot be drained: its part on {machine} is {away}");
                let stop = format!("`nervure stop -d {dataflow}{}`", domain::option());
                return Err(Failure::invalid(text).hint(format!(
                    "{stop} stops the others, and that one when it is back"
                )));
            }
        }
    }
    for (_, connection) in &mut parts {
        connection.ask(&keeper_end::order(arguments))?;
    }
    for (place, mut connection) in parts {
        keeper_end::await_end(&mut connection, place, arguments)?;
    }
    Ok(())
}
