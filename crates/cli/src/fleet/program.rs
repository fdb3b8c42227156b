//! The program of one node from another dataflow file, while everything else stays as it is.

use std::path::Path;

use nervure_daemon::PartProgram;
use nervure_dataflow::{Dataflow, Node, Source};

use crate::failure::Failure;

/// Gives a node the program that another file has for it.
///
/// # Errors
/// If the node has another place in that dataflow: only its program, with its arguments and folder,
/// can be replaced.
pub fn take_program(
    dataflow: &mut Dataflow,
    other: &Dataflow,
    id: &str,
    program: &PartProgram,
) -> Result<(), Failure> {
    let place = dataflow.nodes.iter().position(|node| node.id == id);
    let (Some(place), Some(new)) = (place, other.node(id)) else {
        return Err(not_a_program(id, "is not in both of them", &program.file));
    };
    let new = with_indices_of(dataflow, other, new);
    if let Some(key) = differing(&dataflow.nodes[place], &new) {
        let what = format!("has another `{key}`");
        return Err(not_a_program(id, &what, &program.file));
    }
    let node = &mut dataflow.nodes[place];
    node.program = new.program;
    node.is_built = new.is_built;
    let folder = new.settings.folder;
    node.settings.folder = Some(folder.unwrap_or_else(|| other.directory.clone()));
    node.settings.args = new.settings.args;
    node.settings.version.clone_from(&program.version);
    Ok(())
}

fn not_a_program(id: &str, what: &str, file: &Path) -> Failure {
    let name = file.file_name().unwrap_or_default().display();
    Failure::invalid(format!(
        "node `{id}` {what}: the dataflow that runs, and {name}"
    ))
    .hint("without `--node`, `nervure start --rolling` replaces the whole instance")
}

/// A node of another dataflow, with the indices of this one. Those of nodes and outputs that are not in
/// this one are none of it.
fn with_indices_of(dataflow: &Dataflow, other: &Dataflow, node: &Node) -> Node {
    let node_of = |index: usize| {
        let id = &other.nodes[index].id;
        let found = dataflow.nodes.iter().position(|node| node.id == *id);
        found.unwrap_or(usize::MAX)
    };
    let mut node = node.clone();
    for input in &mut node.inputs {
        input.line = 0;
        if let Source::Output { node, output } = &mut input.source {
            let name = &other.nodes[*node].outputs[*output].name;
            *node = node_of(*node);
            let outputs = dataflow.nodes.get(*node).map_or(&[][..], |it| &it.outputs);
            let found = outputs.iter().position(|output| output.name == *name);
            *output = found.unwrap_or(usize::MAX);
        }
    }
    for client in node.services.iter_mut().flat_map(|it| &mut it.clients) {
        client.node = node_of(client.node);
    }
    for client in &mut node.clients {
        client.server = node_of(client.server);
    }
    node
}

/// The first key of the file that a new program cannot change, and in which two nodes differ.
fn differing(old: &Node, new: &Node) -> Option<&'static str> {
    let mut inputs = old.inputs.clone();
    inputs.iter_mut().for_each(|input| input.line = 0);
    let (before, after) = (&old.settings, &new.settings);
    let keys = [
        ("machine", old.machine == new.machine),
        ("inputs", inputs == new.inputs),
        ("outputs", old.outputs == new.outputs),
        ("types", old.portable_types() == new.portable_types()),
        ("services", old.services == new.services),
        ("clients", old.clients == new.clients),
        (
            "on_partition",
            old.stops_on_partition == new.stops_on_partition,
        ),
        ("shared_memory", old.shared_memory == new.shared_memory),
        ("params", before.params == after.params),
        ("env", before.env == after.env),
        ("restart_policy", before.restart == after.restart),
        (
            "startup_timeout",
            before.startup_timeout == after.startup_timeout,
        ),
        (
            "health_check_timeout",
            before.health_check_timeout == after.health_check_timeout,
        ),
        ("on_failure", before.on_failure == after.on_failure),
        ("process", before.process == after.process),
        ("cpu_affinity", before.cpu_affinity == after.cpu_affinity),
        ("scheduling", before.scheduling == after.scheduling),
        ("memory_lock", before.memory_lock == after.memory_lock),
        ("ready", before.ready == after.ready),
        ("min_log_level", before.min_log_level == after.min_log_level),
        ("loop", before.loop_deadline == after.loop_deadline),
        ("sync", before.sync == after.sync),
        ("transforms", before.transforms == after.transforms),
    ];
    let mut other = keys.into_iter().filter(|(_, is_same)| !is_same);
    other.next().map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataflow(text: &str) -> Dataflow {
        with_definition(text, "float64 x\n")
    }

    /// The dataflow in a folder with a definition of `my/Pose@1`.
    fn with_definition(text: &str, definition: &str) -> Dataflow {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.yml");
        std::fs::write(&file, text).unwrap();
        let package = folder.path().join("msgs/my");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("Pose.msg"), definition).unwrap();
        let report = nervure_dataflow::load(&file);
        report
            .dataflow
            .unwrap_or_else(|| panic!("{:?}", report.diagnostics))
    }

    const FILE: &str = r#"
machines: {robot: {}, edge: {}}
nodes:
  - {id: camera, path: sh, args: "-c one", outputs: [image]}
  - {id: motor, path: sh, args: "-c one", inputs: {image: camera/image}}
"#;

    fn taken(new: &str) -> Result<Node, String> {
        taken_from(dataflow(FILE), &dataflow(new))
    }

    fn taken_from(mut old: Dataflow, new: &Dataflow) -> Result<Node, String> {
        let program = PartProgram {
            file: "programs/7/files/two.yml".into(),
            version: "7".to_owned(),
        };
        let taken = take_program(&mut old, new, "motor", &program);
        taken.map_err(|failure| failure.to_string())?;
        Ok(old.node("motor").unwrap().clone())
    }

    #[test]
    fn a_program_comes_with_its_arguments_whatever_else_is_in_its_file() {
        let new = FILE.replacen(
            "nodes:",
            "nodes:\n  - {id: first, path: sh, machine: edge, outputs: [other]}",
            1,
        );
        let new = new.replace("\"-c one\", inputs", "\"-c two\", inputs");
        let motor = taken(&new).unwrap();
        assert_eq!(motor.settings.args, ["-c", "two"]);
        assert_eq!(motor.settings.version, "7");
        assert!(motor.settings.folder.is_some());
    }

    #[test]
    fn a_node_with_another_place_in_its_dataflow_is_refused() {
        for (new, reason) in [
            (
                FILE.replace(
                    "{image: camera/image}",
                    "{image: {source: camera/image, queue_size: 3}}",
                ),
                "node `motor` has another `inputs`: the dataflow that runs, and two.yml",
            ),
            (
                FILE.replace("id: motor,", "id: motor, machine: edge,"),
                "has another `machine`",
            ),
            (
                FILE.replace("id: motor,", "id: motor, outputs: [more],"),
                "has another `outputs`",
            ),
            (
                FILE.replace("id: motor,", "id: motor, env: {LEVEL: 2},"),
                "has another `env`",
            ),
            (FILE.replace("id: motor,", "id: mover,"), "is not in both"),
        ] {
            let error = taken(&new).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_node_with_another_definition_of_its_type_is_refused() {
        let text = FILE
            .replace("machines:", "types: [msgs]\nmachines:")
            .replace(
                "id: motor,",
                "id: motor, outputs: {pose: {type: my/Pose@1}},",
            );
        let take = |definition: &str| {
            let new = with_definition(&text, definition);
            taken_from(dataflow(&text), &new)
        };
        take("# A comment.\nfloat64 x  # [m]\n").unwrap();
        let error = take("float32 x\n").unwrap_err();
        assert!(error.contains("has another `types`"), "{error}");
    }
}
