//! Joins as the stand-ins of a run, which carry its samples between its keeper and the links.
//!
//! Each stand-in is joined by a thread of its own, and each topic that arrives has one, so that a
//! consumer that makes one topic wait holds up no other. A topic has one stream for each consuming
//! machine.
//!
//! Those of remote consumers join first, so that a local node can answer the first request from another
//! machine: the edge for its answers is attached before the request arrives.

use std::sync::Arc;
use std::sync::mpsc::channel;

use nervure_dataflow::Carries;

use crate::bridge::Bridge;
use crate::crossing::{Crossing, spawn};
use crate::node_changes::ChangeSenders;
use crate::part::{PartSpec, StandIns};
use crate::{incoming, outgoing};

/// Joins as the stand-ins of a run. Its threads end with [`Crossing::end`], after which
/// [`Bridge::on_change`] is to be called.
pub(crate) fn join(
    bridge: &Arc<Bridge>,
    changes: &Arc<ChangeSenders>,
    (run, keeper): (&str, u32),
    spec: &PartSpec,
    stand_ins: StandIns,
) -> Arc<Crossing> {
    let of_machine = (spec.folder.as_path(), bridge.own());
    let of_run = (run, keeper);
    let crossing = Arc::new(Crossing::new(
        of_run,
        of_machine,
        &spec.machines,
        &stand_ins,
    ));
    for stream in stand_ins.outgoing.iter().flat_map(|it| &it.streams) {
        if let Carries::Requests { answers } = &stream.carries {
            crossing.calls.add(answers);
        }
    }
    let shared = || {
        (
            Arc::clone(bridge),
            Arc::clone(changes),
            Arc::clone(&crossing),
        )
    };
    // Dropped by each thread when it has joined.
    let (joins, all_have_joined) = channel::<()>();
    for outgoing in stand_ins.outgoing {
        let (shared, joins) = (shared(), joins.clone());
        spawn(move || outgoing::send_all(&shared.0, &shared.1, &shared.2, &outgoing, joins));
    }
    drop(joins);
    let for_incoming = shared();
    spawn(move || {
        let _ = all_have_joined.recv();
        let (bridge, changes, crossing) = for_incoming;
        for incoming in stand_ins.incoming {
            let (bridge, changes, crossing) = (bridge.clone(), changes.clone(), crossing.clone());
            spawn(move || incoming::publish_all(&bridge, &changes, &crossing, &incoming));
        }
    });
    crossing
}
