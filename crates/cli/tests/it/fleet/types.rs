//! Definitions of types in a folder beside the dataflow file.

use super::*;

/// A source on the robot that sends a sample which does not fit a type of the folder.
fn with_types(fleet: &Fleet, folder: &str) -> PathBuf {
    let file = fleet.file(&json!({
        "machines": {"robot": {}, "edge": {}},
        "types": [folder],
        "nodes": [
            {"id": "source", "machine": "robot", "path": test_node(), "args": "typed",
             "outputs": {"imu": {"type": "my/Imu@1"}, "pose": {}, "alone": {}, "image": {"type": "std/Image@1"}}},
            {"id": "sink", "machine": "edge", "path": test_node(), "args": "receive",
             "inputs": {"imu": {"source": "source/imu", "type": "my/Imu@1", "queue_policy": "block"}}},
        ],
    }));
    let package = file.parent().unwrap().join(folder).join("my");
    fs::create_dir_all(&package).unwrap();
    let fields = "geometry_msgs/Vector3 angular_velocity\nstd/Vector3 linear_acceleration\n";
    fs::write(package.join("Imu.msg"), fields).unwrap();
    file
}

#[test]
fn definitions_in_a_folder_hold_on_the_machine_of_the_output() {
    let fleet = Fleet::with_own_name(None);
    let file = with_types(&fleet, "msgs");
    let name = fleet.dataflow.clone();
    let file = file.to_str().unwrap();
    let start = ["start", file, "--name", &name, "--bind", "edge=laptop"];
    fleet.output(0, &start);
    let misfit = "the output `imu` sends my/Imu@1, field `angular_velocity.y`: expected `float64`, found text";
    fleet.await_that("the sample is refused", |fleet| {
        fleet.printed(1, "source").iter().any(|line| line == misfit)
    });
    fleet.output(0, &["stop", "-d", &name]);

    // Outside of the folder that the fleet gets.
    with_types(&fleet, "../msgs");
    let (code, text) = refused(&fleet, 0, &start);
    assert_eq!(code, Some(2), "{text}");
    for expected in ["there is no folder `../msgs`", "nothing of it runs"] {
        assert!(text.contains(expected), "{text}");
    }
    fleet.check_nothing_left();
}
