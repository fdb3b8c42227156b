//! The machine of each role: one for the dataflow, or one for each of its instances.

use std::collections::{BTreeMap, BTreeSet};

use nervure_coordinator::{ACTUAL, ALIVE, Machine, Role, Standing, check_machine_name};
use nervure_daemon::state::{self, Actual, alive_machines, parse};
use nervure_dataflow::{Dataflow, MAX_NAME_BYTES, Resources, check_name};
use nervure_inspect::format::count;
use nervure_protocol::did_you_mean;
use nervure_store::Store;

use crate::{
    Error, Fleet,
    binding::{Binding, Bound},
    members::machines,
};

/// Between the name of a dataflow and the machine of its instance.
const AT: char = '@';

/// A dataflow that is started on its machines: an instance is one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Name of the dataflow, or `two@r01`.
    pub name: String,
    /// The machine of each role.
    pub placed: BTreeMap<String, String>,
}

/// Whether a run is an instance of this dataflow.
pub fn is_instance_of(run: &str, dataflow: &str) -> bool {
    run.split_once(AT).is_some_and(|(of, _)| of == dataflow)
}

/// Checks the name of a dataflow that a machine is to run, which may be an instance.
pub fn check_instance_name(name: &str) -> Result<(), String> {
    let Some((dataflow, machine)) = name.split_once(AT) else {
        return check_name(name).map_err(|error| error.to_string());
    };
    // As long as a name: it is part of the keeper's address.
    if name.len() > MAX_NAME_BYTES {
        return Err(format!(
            "is {} bytes long; the limit is {MAX_NAME_BYTES}",
            name.len()
        ));
    }
    check_name(dataflow).map_err(|error| error.to_string())?;
    check_machine_name(machine)
}

/// Members of the fleet, with their reports and reachability.
#[derive(Debug, Default)]
pub struct Known {
    machines: Vec<Machine>,
    /// The report of each machine.
    actual: BTreeMap<String, Actual>,
    /// Names of reachable machines.
    alive: BTreeSet<String>,
}

impl Known {
    /// Reads the state of the fleet.
    pub fn read(fleet: &Fleet) -> Result<Self, Error> {
        let store = &fleet.client;
        let alive = store.list(ALIVE)?.entries;
        let reports = store.list(ACTUAL)?.entries;
        let mut actual = BTreeMap::new();
        for entry in &reports {
            let machine = entry.key.strip_prefix(ACTUAL).unwrap_or_default();
            // A machine can write anything there; its roles cannot be placed then.
            if let Ok(report) = parse(&entry.key, &entry.value) {
                actual.insert(machine.to_owned(), report);
            }
        }
        Ok(Self {
            machines: machines(fleet)?,
            actual,
            alive: alive_machines(&alive).into_keys().collect(),
        })
    }

    fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// Why a role with these needs cannot be placed on a machine, which another role may have.
    fn unfit(&self, machine: &Machine, needs: &Needs<'_>, holder: Option<&str>) -> Option<String> {
        if let Some(why) = cannot_run(machine) {
            return Some(why.to_owned());
        }
        let Some(actual) = self.actual.get(&machine.name) else {
            return Some("has not reported yet".to_owned());
        };
        if let Some(other) = holder {
            return Some(format!("is bound to `{other}` already"));
        }
        needs.lacking(actual)
    }

    /// Why nodes cannot be started on a machine now, if only for that.
    fn away(&self, name: &str) -> Option<String> {
        let can_run = self
            .machine(name)
            .is_some_and(|it| cannot_run(it).is_none());
        (can_run && !self.alive.contains(name)).then(|| format!("`{name}` cannot be reached"))
    }

    fn names(&self) -> String {
        let names = self.machines.iter().map(|machine| machine.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Why nodes cannot run on a machine of the fleet.
fn cannot_run(machine: &Machine) -> Option<&'static str> {
    match (machine.standing, machine.role) {
        (Standing::Waiting, _) => Some("waits for approval"),
        (Standing::Revoked, _) => Some("was revoked"),
        (Standing::Paired, Role::Observer) => Some("is an observer, which runs no nodes"),
        (Standing::Paired, Role::Operator | Role::Robot) => None,
    }
}

/// The dataflow, or its instances. Everything that cannot be placed is named.
pub fn plan(
    known: &Known,
    dataflow: &Dataflow,
    name: &str,
    bindings: &[Binding],
) -> Result<Vec<Instance>, Error> {
    check_bindings(dataflow, bindings)?;
    let roles = used_roles(dataflow);
    let mut bound = BTreeMap::new();
    let mut each = None;
    for Binding { role, machines } in bindings {
        match machines {
            Bound::One(machine) => drop(bound.insert(role.as_str(), machine.as_str())),
            Bound::Each(machines) => each = Some((role.as_str(), machines)),
        }
    }
    let mut problems = Vec::new();
    let instances = match each {
        None => {
            let placed = place(known, roles.iter(), &bound, |_| None, &mut problems);
            let name = name.to_owned();
            vec![Instance { name, placed }]
        }
        Some((role, machines)) => {
            let of_role = roles.iter().find(|used| used.name == role);
            let of_role = of_role.ok_or_else(|| {
                wrong(
                    format!("no node runs on `{role}`, so it has no instances"),
                    None,
                )
            })?;
            let others = roles.iter().filter(|used| used.name != role);
            let has_instance =
                |machine: &str| machines.iter().any(|one| one == machine).then_some(role);
            let shared = place(known, others, &bound, has_instance, &mut problems);
            problems.extend(shared.values().filter_map(|machine| known.away(machine)));
            let instance = |machine: &String| {
                let why = match known.machine(machine) {
                    Some(found) => known.unfit(found, &of_role.needs, None),
                    None => Some("has not joined".to_owned()),
                };
                let why = why.map(|why| format!("{}: `{machine}` {why}", of_role.what));
                problems.extend(why.or_else(|| known.away(machine)));
                let name = format!("{name}{AT}{machine}");
                if let Err(why) = check_instance_name(&name) {
                    problems.push(format!("the name `{name}` {why}"));
                }
                let mut placed = shared.clone();
                placed.insert(role.to_owned(), machine.clone());
                Instance { name, placed }
            };
            machines.iter().map(instance).collect()
        }
    };
    if problems.is_empty() {
        return Ok(instances);
    }
    Err(Error::Placement { problems })
}

fn check_bindings(dataflow: &Dataflow, bindings: &[Binding]) -> Result<(), Error> {
    let mut with_instances = None;
    for (index, Binding { role, machines }) in bindings.iter().enumerate() {
        if !dataflow.machines.contains(role) {
            let known = dataflow.machines.iter().map(String::as_str);
            return Err(wrong(
                format!("`--bind {role}=..`: the dataflow has no machine `{role}`"),
                Some(did_you_mean(role, "its machines are", known)),
            ));
        }
        if bindings[..index].iter().any(|other| other.role == *role) {
            return Err(wrong(
                format!("`{role}` is bound twice"),
                Some(format!(
                    "`--bind {role}=r01,r02` starts an instance on each machine"
                )),
            ));
        }
        if matches!(machines, Bound::Each(_))
            && let Some(other) = with_instances.replace(role)
        {
            return Err(wrong(
                format!(
                    "`{other}` and `{role}` are bound to several machines each: only one role can be"
                ),
                None,
            ));
        }
    }
    Ok(())
}

fn wrong(text: String, hint: Option<String>) -> Error {
    Error::Binding { text, hint }
}

/// Requirements of a role on its machine.
struct Needs<'d> {
    labels: Option<&'d BTreeMap<String, String>>,
    resources: Option<&'d Resources>,
}

impl Needs<'_> {
    fn any(&self) -> bool {
        self.has_labels() || self.resources.is_some()
    }

    fn has_labels(&self) -> bool {
        self.labels.is_some_and(|labels| !labels.is_empty())
    }

    fn name(&self) -> &'static str {
        match (self.has_labels(), self.resources) {
            (_, None) => "labels",
            (false, Some(_)) => "resources",
            (true, Some(_)) => "labels and resources",
        }
    }

    /// The first requirement that a machine does not meet.
    fn lacking(&self, actual: &Actual) -> Option<String> {
        let missing = self.labels.into_iter().flatten().find_map(|(name, text)| {
            let own = actual.labels.get(name);
            match own {
                Some(own) if own == text => None,
                Some(own) => Some(format!("has the label `{name}={own}`, not `{name}={text}`")),
                None => Some(format!("has no label `{name}`")),
            }
        });
        missing.or_else(|| {
            let needed = self.resources?;
            match &actual.resources {
                Some(own) => lacking(needed, own),
                None => Some("has not reported its resources".to_owned()),
            }
        })
    }
}

fn lacking(needed: &Resources, own: &state::Resources) -> Option<String> {
    let counted = |number: u32, what| count(number as usize, what);
    let mebibytes = |bytes: u64| format!("{} MiB of memory", bytes >> 20);
    let is_less = |needed: Option<u32>, own: u32| needed.filter(|needed| own < *needed);
    if let Some(cpus) = is_less(needed.cpus, own.cpus) {
        let own = counted(own.cpus, "processor");
        return Some(format!("has {own}, not {cpus}"));
    }
    if let Some(memory) = needed.memory.filter(|memory| own.memory < *memory) {
        let own = mebibytes(own.memory);
        return Some(format!("has {own}, not {}", memory.div_ceil(1 << 20)));
    }
    let gpus = is_less(needed.gpus, own.gpus)?;
    let own = counted(own.gpus, "GPU");
    Some(format!("has {own}, not {gpus}"))
}

/// A role that has nodes.
struct UsedRole<'d> {
    name: &'d str,
    /// The role and its nodes, for messages.
    what: String,
    needs: Needs<'d>,
}

/// The roles that have nodes: others need no machine.
fn used_roles(dataflow: &Dataflow) -> Vec<UsedRole<'_>> {
    let used = |name: &'_ String| {
        let nodes = dataflow.nodes.iter();
        let nodes = nodes.filter(|node| node.machine.as_ref() == Some(name));
        let ids: Vec<_> = nodes.map(|node| node.id.as_str()).collect();
        let what = format!("machine `{name}` with {}", ids.join(", "));
        (!ids.is_empty()).then_some(what)
    };
    let roles = dataflow.machines.iter();
    roles
        .filter_map(|name| {
            Some(UsedRole {
                name,
                what: used(name)?,
                needs: Needs {
                    labels: dataflow.labels.get(name),
                    resources: dataflow.resources.get(name),
                },
            })
        })
        .collect()
}

/// The machine of each role. What prevents it is added to the problems. `holder` is a role that has
/// a machine already.
fn place<'d>(
    known: &Known,
    roles: impl Iterator<Item = &'d UsedRole<'d>>,
    bound: &BTreeMap<&str, &str>,
    holder: impl Fn(&str) -> Option<&'d str>,
    problems: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut placed = BTreeMap::new();
    let holder = |placed: &BTreeMap<String, String>, machine: &str| {
        let other = placed.iter().find(|(_, taken)| *taken == machine);
        let other = other.map(|(role, _)| role.clone());
        other.or_else(|| holder(machine).map(str::to_owned))
    };
    let mut by_needs = Vec::new();
    for role in roles {
        let bound = bound.get(role.name).copied();
        let name = bound.unwrap_or(role.name);
        match known.machine(name) {
            Some(machine) => {
                let holder = holder(&placed, name);
                if let Some(why) = known.unfit(machine, &role.needs, holder.as_deref()) {
                    problems.push(format!("{}: `{name}` {why}", role.what));
                }
                placed.insert(role.name.to_owned(), name.to_owned());
            }
            None if bound.is_none() && role.needs.any() => by_needs.push(role),
            None => problems.push(format!(
                "{}: no machine `{name}` has joined; these have: {}",
                role.what,
                known.names()
            )),
        }
    }
    for role in by_needs {
        let mut reasons = Vec::new();
        for machine in &known.machines {
            let holder = holder(&placed, &machine.name);
            match known.unfit(machine, &role.needs, holder.as_deref()) {
                None => {
                    placed.insert(role.name.to_owned(), machine.name.clone());
                    break;
                }
                Some(why) => reasons.push(format!("`{}` {why}", machine.name)),
            }
        }
        if !placed.contains_key(role.name) {
            problems.push(format!(
                "{}: no machine has its {}: {}",
                role.what,
                role.needs.name(),
                reasons.join("; ")
            ));
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use nervure_inspect::Fault;

    use super::*;

    const FILE: &str = r#"
machines: {robot: {}, edge: {labels: {gpu: "true"}}}
nodes:
  - {id: camera, path: dynamic, outputs: [image]}
  - {id: planner, path: dynamic, machine: edge, inputs: {image: camera/image}}
"#;

    fn dataflow() -> Dataflow {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.yml");
        std::fs::write(&file, FILE).unwrap();
        let report = nervure_dataflow::load(&file);
        report.dataflow.expect("the file has no errors")
    }

    /// Machines that have joined and can be reached: `ws` has the label of `edge`.
    fn fleet(names: &[&str]) -> Known {
        let machine = |name: &&str| Machine {
            name: (*name).to_owned(),
            key: String::new(),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            role: Role::Robot,
            standing: Standing::Paired,
            coordinator: None,
        };
        let label = ("gpu".to_owned(), "true".to_owned());
        let actual = |name: &&str| {
            let labels = (*name == "ws").then(|| label.clone());
            let actual = Actual {
                labels: labels.into_iter().collect(),
                ..Actual::default()
            };
            ((*name).to_owned(), actual)
        };
        Known {
            machines: names.iter().map(machine).collect(),
            actual: names.iter().map(actual).collect(),
            alive: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn planned(known: &Known, bindings: &[&str]) -> Result<Vec<Instance>, String> {
        let bindings: Vec<Binding> = bindings.iter().map(|text| text.parse().unwrap()).collect();
        plan(known, &dataflow(), "two", &bindings).map_err(|error| error.text_with_causes())
    }

    #[test]
    fn each_machine_has_an_instance_and_other_roles_are_placed_for_each() {
        let known = fleet(&["r01", "r02", "ws"]);
        let instances = planned(&known, &["robot=r01..r02"]).unwrap();
        let shown: Vec<_> = instances
            .iter()
            .map(|it| (it.name.as_str(), &it.placed["robot"], &it.placed["edge"]))
            .map(|(name, robot, edge)| format!("{name}: {robot}, {edge}"))
            .collect();
        assert_eq!(shown, ["two@r01: r01, ws", "two@r02: r02, ws"]);
        let alone = planned(&known, &["robot=r01"]).unwrap();
        assert_eq!(alone[0].name, "two");
    }

    #[test]
    fn all_machines_that_are_unknown_or_away_are_named_at_once() {
        let mut known = fleet(&["r01", "r02", "r03", "ws"]);
        known.alive.remove("r02");
        known.machines[2].standing = Standing::Revoked;
        let problems = planned(&known, &["robot=r01..r04"]).unwrap_err();
        for part in [
            "`r02` cannot be reached",
            "machine `robot` with camera: `r03` was revoked",
            "machine `robot` with camera: `r04` has not joined",
        ] {
            assert_eq!(problems.matches(part).count(), 1, "{part}: {problems}");
        }
        assert!(!problems.contains("r01` "), "{problems}");
        // A requirement that no instance meets is reported once.
        let problems = planned(&fleet(&["r01", "r02"]), &["robot=r01..r02"]).unwrap_err();
        let count = problems.matches("no machine has its labels").count();
        assert_eq!(count, 1, "{problems}");
    }

    #[test]
    fn one_role_has_instances_and_each_is_bound_once() {
        let known = fleet(&["r01", "r02", "ws"]);
        for (bindings, reason) in [
            (
                &["robot=r01,r02", "edge=ws,r02"][..],
                "`robot` and `edge` are bound to several machines each",
            ),
            (&["robot=r01", "robot=r02"], "`robot` is bound twice"),
            (&["robt=r01,r02"], "the dataflow has no machine `robt`"),
            (
                &["robot=r01,ws", "edge=ws"],
                "`ws` is bound to `robot` already",
            ),
        ] {
            let error = planned(&known, bindings).unwrap_err();
            assert!(error.contains(reason), "{bindings:?}: {error}");
        }
    }

    #[test]
    fn an_instance_has_a_name_that_a_socket_takes() {
        let long = "r".repeat(61);
        let error = planned(&fleet(&[&long, "ws"]), &[&format!("robot={long},ws")]).unwrap_err();
        assert!(error.contains("the limit is 64"), "{error}");
        assert_eq!(check_instance_name("two@r01"), Ok(()));
        for name in ["two@", "@r01", "two@r01@r02", "two@r/1", "-two@r01"] {
            assert!(check_instance_name(name).is_err(), "{name}");
        }
        assert!(is_instance_of("two@r01", "two") && !is_instance_of("two@r01", "tw"));
        assert!(!is_instance_of("two", "two"));
    }
}
