//! Orders of this machine's user for what runs on this machine. They need neither the daemon nor the
//! coordinator, and no operator's role.

use std::{process::ExitCode, time::Duration};

use nervure_coordinator::Role;
use nervure_daemon::{
    by_hand::{self, ByHand},
    folder::Folder,
    runs_here::{RunHere, await_starter, runs_here},
};
use nervure_fleet::{Fleet, connection, placement::is_instance_of};
use nervure_inspect::{daemon, places::Place};
use nervure_node::running::{self, Connection};
use nervure_protocol::{cli_to_daemon, cli_to_keeper::Message};
use serde_json::json;

use crate::{
    domain,
    failure::Failure,
    inspect::{
        arguments::StopArguments,
        keeper_end::{end_keeper, of_all},
    },
    output,
};

/// Time limit for a connection to the coordinator. After that, an order is for this machine alone, whose
/// user waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// The parts of dataflows of the fleet on this machine that a command names.
pub struct Here {
    folder: Option<Folder>,
    parts: Vec<RunHere>,
}

/// Why an order is for this machine alone.
pub enum Alone {
    /// The order kills nodes, which no order of the fleet does.
    Kill,
    /// This machine is a robot.
    Robot,
    /// Its daemon does not run.
    NoDaemon,
    /// The fleet cannot be ordered.
    Failed(Failure),
}

impl Here {
    /// The parts of that name on this machine, or of instances of it; without a name the only dataflow of this
    /// machine, if that is one of the fleet.
    pub fn find(name: Option<&str>) -> Result<Self, Failure> {
        let Some(folder) = Folder::existing().map_err(nervure_inspect::Error::Folder)? else {
            return Ok(Self {
                folder: None,
                parts: Vec::new(),
            });
        };
        let (mut parts, others) = runs_here(&folder)?;
        match running::named(name) {
            None if parts.len() != 1 || !others.is_empty() => parts.clear(),
            None => {}
            Some(name) => {
                let has_keeper = |part: &RunHere| {
                    let keeper = part.keeper.as_ref();
                    keeper.is_some_and(|keeper| keeper.keeper.to_string() == name)
                };
                let is_named = |part: &RunHere| part.dataflow == name || has_keeper(part);
                match parts.iter().any(is_named) {
                    true => parts.retain(is_named),
                    false => parts.retain(|part| is_instance_of(&part.dataflow, &name)),
                }
            }
        }
        Ok(Self {
            folder: Some(folder),
            parts,
        })
    }

    /// Whether this machine has no such part.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The fleet, if this machine can order all parts now: without waiting for a coordinator that cannot be
    /// reached.
    pub fn fleet(&self) -> Result<Fleet, Alone> {
        if connection::role() == Some(Role::Robot) {
            return Err(Alone::Robot);
        }
        match daemon::process() {
            Ok(Some(_)) => {}
            Ok(None) => return Err(Alone::NoDaemon),
            Err(error) => return Err(Alone::Failed(error.into())),
        }
        let fleet = Fleet::connect().map_err(|error| Alone::Failed(error.into()))?;
        match fleet.client.connect_within(CONNECT_TIMEOUT) {
            Ok(()) => Ok(fleet),
            Err(error) => Err(Alone::Failed(error.into())),
        }
    }

    /// Stops the parts on this machine, or kills them.
    pub fn stop(&self, arguments: &StopArguments, alone: Alone) -> Result<ExitCode, Failure> {
        let kept = self.order(Some(ByHand::Stopped));
        let stop = |(folder, part): (&Folder, &RunHere)| {
            let keeper = part.keeper.clone();
            match keeper.or_else(|| await_starter(folder, &part.run)) {
                Some(address) => end_keeper(&Place::Here(address), arguments),
                None => output::write(&match arguments.target.json {
                    true => format!("{}\n", json!({"dataflow": part.dataflow, "stopped": true})),
                    false => format!("{} has stopped\n", part.dataflow),
                })
                .map(|()| ExitCode::SUCCESS),
            }
        };
        let stopped: Vec<Result<ExitCode, Failure>> = self.each().map(stop).collect();
        self.notify_daemon();
        let codes = stopped.into_iter().collect::<Result<_, _>>()?;
        kept?;
        self.explain("stop", alone).map(|()| of_all(codes))
    }

    /// Pauses or resumes the parts on this machine. Returns the names of their dataflows.
    pub fn set_paused(&self, is_paused: bool, alone: Alone) -> Result<Vec<String>, Failure> {
        let order = is_paused.then_some(ByHand::Paused);
        let kept = self.order(order);
        let (command, message) = match is_paused {
            true => ("pause", Message::Pause),
            false => ("resume", Message::Resume),
        };
        if !is_paused {
            self.refuse_paused_by_operator()?;
        }
        for (_, part) in self.each() {
            if let Some(address) = &part.keeper {
                let mut connection = Connection::open(address, &format!("nervure {command}"))?;
                connection.ask(&message)?;
            }
        }
        self.notify_daemon();
        kept?;
        self.explain(command, alone)?;
        let names = self.parts.iter().map(|part| part.dataflow.clone());
        Ok(names.collect())
    }

    /// Takes a pause of this machine's user back, before the fleet resumes the dataflow.
    pub fn release(&self) -> Result<(), Failure> {
        let is_held = self
            .each()
            .any(|(folder, part)| by_hand::current(&folder.run(&part.run)) == Some(ByHand::Paused));
        if is_held {
            self.order(None)?;
            self.notify_daemon();
        }
        Ok(())
    }

    fn each(&self) -> impl Iterator<Item = (&Folder, &RunHere)> {
        let folder = self.folder.iter();
        folder.flat_map(|folder| self.parts.iter().map(move |part| (folder, part)))
    }

    /// Writes an order for all parts to the disk. The keepers get it also if that fails.
    fn order(&self, order: Option<ByHand>) -> Result<(), Failure> {
        let mut kept = Ok(());
        for (folder, part) in self.each() {
            let written = by_hand::order(&folder.run(&part.run), order);
            kept = kept.and(written.map_err(|error| {
                Failure::internal(format!(
                    "the order for {} is carried out, and not kept on disk: after a restart of this machine or its \
                     daemon the coordinator's order holds",
                    part.dataflow
                ))
                .because(error)
            }));
        }
        kept
    }

    /// The daemon reads the orders from the disk: now, or when it starts.
    fn notify_daemon(&self) {
        for part in &self.parts {
            let run = part.run.clone();
            if let Ok(Some(mut daemon)) = daemon::connect_if_paired("nervure")
                && daemon.send(&cli_to_daemon::Message::ByHand { run }).is_ok()
            {
                let _ = daemon.receive_in_time();
            }
        }
    }

    fn refuse_paused_by_operator(&self) -> Result<(), Failure> {
        let is_paused = |part: &&RunHere| part.desired.as_ref().is_some_and(|it| it.is_paused);
        let Some(part) = self.parts.iter().find(is_paused) else {
            return Ok(());
        };
        let name = &part.dataflow;
        self.notify_daemon();
        Err(
            Failure::invalid(format!("{name} stays paused: an operator has paused it")).hint(
                format!("`nervure resume -d {name}` on an operator's machine lets it go on"),
            ),
        )
    }

    /// Notes the machines and the daemon that the order did not reach.
    fn explain(&self, command: &str, alone: Alone) -> Result<(), Failure> {
        let name = &self.parts[0].dataflow;
        let is_alone = |part: &RunHere| {
            let desired = part.desired.as_ref();
            desired.is_some_and(|desired| desired.machines.len() == 1)
        };
        if !self.parts.iter().all(is_alone) {
            note!(
                "this was on this machine alone; `nervure {command} -d {name}{}` on an operator's machine is for \
                 all machines of {name}",
                domain::option()
            );
        }
        match alone {
            Alone::Kill | Alone::Robot => Ok(()),
            Alone::NoDaemon => {
                note!(
                    "the daemon of this machine does not run: the coordinator learns of this when `nervure up` or \
                     `nervure join` has started it"
                );
                Ok(())
            }
            Alone::Failed(failure) => Err(failure),
        }
    }
}
