//! Random orders to a fleet, random failures, and the invariants that hold in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use nervure_daemon::by_hand::ByHand;
use nervure_daemon::state::{
    Actual, Desired, DesiredProgram, DesiredRun, Phase, RunState, actual_key, change_desired,
    desired_key, parse,
};
use nervure_store::Store;

use crate::desired::desired_run;
use crate::machine::Machine;
use crate::world::World;

impl World {
    /// Some seconds of failures of all kinds, after which the fleet has to reach the desired state.
    pub fn live(&mut self) {
        for at in 0..self.machines.len() {
            self.start_daemon(at);
        }
        for _ in 0..150 {
            let pause = self.random.u64(..200);
            self.run_to(self.now + Duration::from_millis(pause));
            match self.random.u64(..5) {
                0 | 1 => self.operate(),
                2 => self.fail(),
                _ => {}
            }
            if self.has_users && self.random.u64(..8) == 0 {
                self.order_on_a_machine();
            }
        }
        self.check_convergence();
    }

    /// A store comes back from a backup that is old, while machines are away or crash. Nothing old starts
    /// and nothing ends; a new order is carried out.
    pub fn live_through_a_restore(&mut self) {
        for at in 0..self.machines.len() {
            self.start_daemon(at);
        }
        let backup_at = self.random.u64(..90);
        let mut backup = self.coordinator.store.backup();
        for step in 0..120 {
            let pause = self.random.u64(..200);
            self.run_to(self.now + Duration::from_millis(pause));
            if step == backup_at {
                backup = self.coordinator.store.backup();
            }
            match self.random.u64(..5) {
                0 | 1 => self.operate(),
                2 => self.fail(),
                _ => {}
            }
        }
        self.check_convergence();
        let ids = |machine: &Machine| -> BTreeSet<u32> {
            machine.keepers.values().map(|keeper| keeper.id).collect()
        };
        let before: Vec<_> = self.machines.iter().map(ids).collect();
        for at in 0..self.machines.len() {
            match self.random.u64(..4) {
                0 => self.set_reachable(at, false),
                1 => self.kill_daemon(at),
                _ => {}
            }
        }
        self.restore_coordinator(backup);
        let pause = self.random.u64(..3000);
        self.run_to(self.now + Duration::from_millis(pause));
        let epoch = self.coordinator.store.list("").unwrap().epoch.id;
        for at in 0..self.machines.len() {
            self.change(at, |desired| {
                let run = DesiredRun {
                    epoch,
                    ..desired_run(Phase::Run)
                };
                desired.runs.insert("new".to_owned(), run);
            });
        }
        self.mend();
        let is_done = |machine: &Machine| {
            let new = machine.keepers.get("new").is_some_and(|it| it.leased_runs);
            new && machine.disk.kept.desired.runs.contains_key("new")
        };
        let until = self.now + Duration::from_secs(150);
        while self.now < until && !self.machines.iter().all(is_done) {
            self.run_to(self.now + Duration::from_millis(500));
        }
        // A run that starts or ends by itself would do so soon.
        self.run_to(self.now + Duration::from_secs(5));
        for (machine, mut before) in self.machines.iter().zip(before) {
            let seed = self.seed;
            assert!(
                is_done(machine),
                "seed {seed}: {} takes no order",
                machine.name
            );
            before.insert(machine.keepers["new"].id);
            assert_eq!(ids(machine), before, "seed {seed}: {}", machine.name);
        }
    }

    /// An operator starts, advances, pauses, stops or removes a dataflow of some machines.
    fn operate(&mut self) {
        let all = (0..self.machines.len()).map(|at| self.desired(at));
        let runs: BTreeSet<String> = all.flat_map(|it| it.runs.into_keys()).collect();
        let runs: Vec<String> = runs.into_iter().collect();
        let pick = self.random.usize(..runs.len().max(1));
        match (self.random.u64(..7), runs.get(pick)) {
            (0 | 1, _) | (_, None) => {
                let run = format!("run{}", self.draw_number());
                for at in 0..self.machines.len() {
                    if self.random.bool() {
                        self.change(at, |desired| {
                            let prepared = desired_run(Phase::Prepare);
                            desired.runs.insert(run.clone(), prepared);
                        });
                    }
                }
            }
            (2, Some(run)) => self.advance(run, |it| it.phase = Phase::Stop),
            (3, Some(run)) => {
                for at in 0..self.machines.len() {
                    self.change(at, |desired| drop(desired.runs.remove(run)));
                }
            }
            (4, Some(run)) => self.advance(run, |it| it.is_paused ^= true),
            (5, Some(run)) => {
                let program = DesiredProgram {
                    version: self.draw_number().to_string(),
                    bundle: String::new(),
                    file: "two.yml".to_owned(),
                };
                self.advance(run, |it| {
                    it.programs.insert("motor".to_owned(), program.clone());
                });
            }
            (_, Some(run)) => self.advance(run, |it| it.phase = Phase::Run),
        }
    }

    fn advance(&mut self, run: &str, change: impl Fn(&mut DesiredRun)) {
        for at in 0..self.machines.len() {
            self.change(at, |desired| {
                if let Some(run) = desired.runs.get_mut(run)
                    && run.phase != Phase::Stop
                {
                    change(run);
                }
            });
        }
    }

    fn desired(&self, at: usize) -> Desired {
        let key = desired_key(&self.machines[at].name);
        let entry = self.coordinator.store.get(&key).unwrap();
        entry.map_or_else(Desired::default, |entry| parse(&key, &entry.value).unwrap())
    }

    fn is_revision_kept(&self, at: usize) -> bool {
        let machine = &self.machines[at];
        let entry = self.coordinator.store.get(&desired_key(&machine.name));
        let entry = entry.unwrap();
        entry.is_none_or(|entry| machine.disk.kept.revision == entry.revision)
    }

    /// Changes the desired state and the test's copy of it; neither if the coordinator's disk is full.
    fn change(&mut self, at: usize, change: impl Fn(&mut Desired)) {
        let name = self.machines[at].name.clone();
        let before = self.desired(at);
        let done = change_desired(&self.coordinator.store, &name, change);
        let now = self.desired(at);
        assert!(done.is_ok() || now == before, "seed {}", self.seed);
        let runs = now.runs.iter();
        let runs = runs.filter(|(_, it)| it.phase == Phase::Run);
        self.machines[at]
            .intended
            .extend(runs.map(|(run, _)| run.clone()));
        if now != before {
            self.notify(&desired_key(&name));
        }
    }

    /// Gives an order of a machine's user for a run there.
    fn order_on_a_machine(&mut self) {
        let at = self.random.usize(..self.machines.len());
        let runs: Vec<String> = self.machines[at].disk.runs.keys().cloned().collect();
        let pick = self.random.usize(..runs.len().max(1));
        let order = match self.random.u64(..4) {
            0 => Some(ByHand::Stopped),
            1 | 2 => Some(ByHand::Paused),
            _ => None,
        };
        if let Some(run) = runs.get(pick) {
            self.order_by_hand(at, run, order);
        }
    }

    fn fail(&mut self) {
        let at = self.random.usize(..self.machines.len());
        match self.random.u64(..12) {
            0 | 1 => {
                let is_reachable = !self.machines[at].is_reachable;
                self.set_reachable(at, is_reachable);
            }
            2 if self.coordinator.is_up => {
                let with_machine = self.random.bool();
                self.stop_coordinator(with_machine);
            }
            2 => self.start_coordinator(),
            3 => self.kill_daemon(at),
            4 => self.fail_power(at),
            5 | 6 => {
                let runs: Vec<String> = self.machines[at].keepers.keys().cloned().collect();
                let pick = self.random.usize(..runs.len().max(1));
                let finished = self.random.u64(..4) == 0;
                if let Some(run) = runs.get(pick) {
                    self.end_keeper(at, run, finished);
                }
            }
            7 | 8 => self.machines[at].disk.is_full ^= true,
            9 => {
                let millis = [10, 10, 500, 4000][self.random.usize(..4)];
                self.machines[at].disk.write_millis = millis;
            }
            10 => *self.coordinator.is_disk_full.lock().unwrap() ^= true,
            _ => {
                let millis = [2, 2, 300, 2000][self.random.usize(..4)];
                self.coordinator.write = Duration::from_millis(millis);
            }
        }
        for at in 0..self.machines.len() {
            if self.machines[at].daemon.is_none() && self.random.u64(..3) == 0 {
                self.start_daemon(at);
            }
        }
    }

    /// Nothing fails any more.
    fn mend(&mut self) {
        *self.coordinator.is_disk_full.lock().unwrap() = false;
        self.coordinator.write = Duration::from_millis(2);
        if !self.coordinator.is_up {
            self.start_coordinator();
        }
        for at in 0..self.machines.len() {
            self.set_reachable(at, true);
            self.machines[at].disk.is_full = false;
            self.machines[at].disk.write_millis = 10;
            if self.machines[at].daemon.is_none() {
                self.start_daemon(at);
            }
        }
    }

    /// Ends all failures: the desired state is reached, is reported, and is on disk.
    fn check_convergence(&mut self) {
        self.mend();
        // A watch waits up to 40 s for a coordinator that has failed without a word, and a keeper
        // that was killed again and again a minute.
        let until = self.now + Duration::from_secs(150);
        while self.now < until && !(0..self.machines.len()).all(|at| self.is_settled(at)) {
            self.run_to(self.now + Duration::from_millis(500));
        }
        for at in 0..self.machines.len() {
            assert!(
                self.is_settled(at),
                "seed {}: {}: desired {:?}, on disk {:?}, actual {:?}, reported {:?}, files {:?}",
                self.seed,
                self.machines[at].name,
                self.desired(at),
                self.machines[at].disk.kept,
                self.actual(at),
                self.reported(at),
                self.machines[at].disk.runs.keys(),
            );
        }
    }

    fn actual(&self, at: usize) -> Actual {
        let machine = &self.machines[at];
        machine.daemon.as_ref().unwrap().actual(&machine.keepers)
    }

    fn reported(&self, at: usize) -> Option<Actual> {
        let key = actual_key(&self.machines[at].name);
        let entry = self.coordinator.store.get(&key).unwrap()?;
        parse(&key, &entry.value).ok()
    }

    fn is_settled(&self, at: usize) -> bool {
        let (desired, actual, machine) = (self.desired(at), self.actual(at), &self.machines[at]);
        let is_so = |(run, desired): (&String, &DesiredRun)| {
            let keeper = machine.keepers.get(run);
            let found = actual.runs.get(run);
            let by_hand = machine.by_hand(run);
            if found.is_some_and(|it| it.by_hand != by_hand) {
                return false;
            }
            match (desired.phase, found.map(|it| &it.state)) {
                (_, state) if by_hand == Some(ByHand::Stopped) => {
                    state == Some(&RunState::Ended) && keeper.is_none()
                }
                // A failed preparation is reported: the operator's command removes the run.
                (Phase::Prepare, Some(RunState::Prepared | RunState::Failed { .. })) => {
                    keeper.is_none()
                }
                (Phase::Run, Some(RunState::Running { keeper: id })) => keeper.is_some_and(|it| {
                    let is_paused = found.is_some_and(|it| it.is_paused);
                    let motor = desired.programs.get("motor");
                    let version = motor.map_or("", |program| &program.version);
                    it.id == *id
                        && it.leased_runs
                        && is_paused == (desired.is_paused || by_hand.is_some())
                        && it.version == version
                }),
                (Phase::Run, Some(RunState::Ended)) => machine.is_over.contains(run),
                (Phase::Stop, Some(RunState::Ended)) => keeper.is_none(),
                _ => false,
            }
        };
        let is_known = |run: &String| desired.runs.contains_key(run);
        desired.runs.iter().all(is_so)
            && machine.keepers.keys().all(is_known)
            && machine.disk.runs.keys().all(is_known)
            && machine.disk.kept.desired == desired
            // An empty state on disk may be one that never arrived.
            && self.is_revision_kept(at)
            && self.reported(at) == Some(actual.clone())
    }
}
