//! Desired states for tests.

use std::collections::BTreeMap;

use nervure_daemon::state::{DesiredRun, Phase};

pub fn desired_run(phase: Phase) -> DesiredRun {
    DesiredRun {
        phase,
        dataflow: "two".to_owned(),
        bundle: String::new(),
        file: "two.yml".to_owned(),
        role: "robot".to_owned(),
        machines: BTreeMap::new(),
        params: Vec::new(),
        variables: Vec::new(),
        is_paused: false,
        epoch: 0,
        programs: BTreeMap::new(),
    }
}
