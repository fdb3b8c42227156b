//! The definitions of types, and the check of samples against the declared types of their outputs.

use std::path::Path;

use serde_json::{Value, json};

use crate::dataflow::{Dataflow, nervure, output};

#[test]
fn a_sample_that_does_not_fit_its_type_is_refused_where_it_is_sent() {
    let outputs = json!({
        "imu": {"type": "std/Imu@1"}, "pose": {"type": "my/Pose@1"}, "alone": {"type": "std/Imu@1"},
        "image": {"type": "std/Image@1"},
    });
    let block = |source: &str| json!({"source": source, "queue_policy": "block"});
    let inputs = json!({"imu": block("sensor/imu"), "pose": block("sensor/pose")});
    let outcome = Dataflow::new()
        .node("sensor", "typed", json!({"outputs": outputs}))
        .node("sink", "receive", json!({"inputs": inputs}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let misfit = "std/Imu@1, field `angular_velocity.y`: expected `float64`, found text";
    let image = "std/Image@1: expected a tensor: u1, i1, u2, i2, i4, f4, f8: \
                 height x width or height x width x channels, found";
    assert_eq!(
        outcome.lines("sensor"),
        [
            format!("the output `imu` sends {misfit}"),
            format!("the output `alone` sends {misfit}"),
            format!("the output `image` sends {image} text"),
            format!("the output `image` sends {image} a tensor of f4, 24"),
        ]
    );
    let summary = outcome.summary();
    let received = |at: usize| {
        (
            &summary["edges"][at]["sent"],
            &summary["edges"][at]["received"],
        )
    };
    assert_eq!(received(0), (&json!(2), &json!(2)), "{summary}");
    assert_eq!(received(1), (&json!(3), &json!(3)), "{summary}");
}

/// Exit code and output of `nervure types`.
fn types(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = nervure(Path::new("/"));
    command.arg("types").args(arguments);
    output(command)
}

#[test]
fn a_type_is_shown_with_units_constants_and_what_it_corresponds_to() {
    let (code, text, _) = types(&["show", "std/Twist"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        text,
        "std/Twist@1\nVelocity in the sample's frame.\n\n\
         FIELD    TYPE         UNIT\n\
         linear   std/Vector3  m/s\n\
         angular  std/Vector3  rad/s\n\n\
         ROS 2: geometry_msgs/Twist\n"
    );
    let (_, text, _) = types(&["show", "std/NavSatStatus@1"]);
    assert!(
        text.contains("STATUS_SBAS_FIX  1      With augmentation by satellites"),
        "{text}"
    );
    let (_, text, _) = types(&["show", "sensor_msgs/msg/Joy"]);
    assert!(text.contains("buttons  int32[]"), "{text}");
    let (_, text, _) = types(&["show", "std/Image"]);
    assert!(
        text.contains("encoding?") && text.contains("in the metadata"),
        "{text}"
    );
    let (code, _, error) = types(&["show", "std/Twits@1"]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("there is no type `std/Twits@1`")
            && error.contains("did you mean `std/Twist@1`?"),
        "{error}"
    );
}

#[test]
fn types_are_listed_and_shown_as_json() {
    let json_of = |arguments: &[&str]| -> Value {
        let (code, text, error) = types(arguments);
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_str(&text).unwrap()
    };
    let all = json_of(&["list", "--json"]);
    assert_eq!(all.as_array().unwrap().len(), 42);
    let (_, text, _) = types(&["list"]);
    assert_eq!(text.lines().count(), 43);
    assert!(text.contains("std/Imu@1"), "{text}");
    let imu = json_of(&["show", "std/Imu@1", "--json"]);
    assert_eq!(
        (&imu["name"], &imu["ros"]),
        (&json!("std/Imu@1"), &json!("sensor_msgs/Imu"))
    );
    let hash = "RIHS01_7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b";
    assert_eq!(imu["ros_hash"], hash);
    let velocity = &imu["fields"][2];
    assert_eq!(
        (
            &velocity["name"],
            &velocity["type"],
            &velocity["unit"],
            &velocity["optional"]
        ),
        (
            &json!("angular_velocity"),
            &json!("std/Vector3"),
            &json!("rad/s"),
            &json!(false)
        )
    );
    assert_eq!(imu["fields"][1]["tensors"], json!(["3 x 3"]));
}

#[test]
fn code_is_generated_from_standard_types_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("my_robot/msg");
    std::fs::create_dir_all(&package).unwrap();
    let write = |name: &str, text: &str| std::fs::write(package.join(name), text).unwrap();
    write("Joint.msg", "string name\nfloat64 angle  # [rad]\n");
    write(
        "Arm.msg",
        "# An arm.\n\nJoint[] joints\nstd/Pose hand\nfloat64 load\nuint8 MOST = 7\n",
    );
    write("Arm.toml", "[fields.load]\noptional = true\n");
    write("Wrong.msg", "int32 count\n  flot64 angle\n");
    write("Constant.msg", "uint8 MOST = 300\n");
    let generate = |arguments: &[&str]| {
        let mut command = nervure(&package);
        command.args(["types", "generate"]).args(arguments);
        output(command)
    };
    let (code, text, error) = generate(&["--language", "python", "Arm.msg"]);
    assert_eq!(code, Some(0), "{error}");
    let class = "\nclass Arm:\n    \"\"\"An arm.\"\"\"\n\n    __nervure_type__: ClassVar[str] = \"my_robot/Arm@1\"\n    \
                 MOST: ClassVar[int] = 7\n\n    joints: list[Joint]\n    hand: Pose\n    _: KW_ONLY\n    \
                 load: float | None = None\n";
    assert!(text.ends_with(class), "{text}");
    let (_, text, _) = generate(&["-l", "rust", "Arm.msg", "--package", "your"]);
    assert!(
        text.contains("pub const NERVURE_TYPE: &'static str = \"your/Arm@1\";"),
        "{text}"
    );
    let (code, _, _) = generate(&["-l", "c++", "std/Imu", "-o", "imu.hpp"]);
    assert_eq!(code, Some(0));
    let header = std::fs::read_to_string(package.join("imu.hpp")).unwrap();
    assert!(header.contains("namespace nervure::types {") && header.contains("struct Imu {"));
    for (arguments, expected) in [
        (
            &["Wrong.msg"][..],
            "Wrong.msg:2:3: found `my_robot/flot64`, expected a type with a definition (did you mean `float64`?)",
        ),
        (
            &["Constant.msg"],
            "Constant.msg:1:14: found `300`, expected",
        ),
        (&["std/Imo"], "there is no type `std/Imo`"),
        (&["Leg.msg"], "Leg.msg cannot be read"),
        (
            &["Arm.msg", "--package", "std"],
            "the namespace of Arm.msg is `std`, which is that of Nervure's types",
        ),
        (
            &["Arm.msg", "--package", "a-b"],
            "the namespace of Arm.msg is `a-b`, expected letters, digits and `_`",
        ),
    ] {
        let (code, _, error) = generate(&[&["-l", "rust"], arguments].concat());
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn types_of_files_and_folders_are_listed_shown_and_generated() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join("msgs").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "arm/Joint.msg",
        "# A joint. It turns.\nfloat64 angle  # [rad]\n",
    );
    write("arm/Joint.toml", "version = 2\n");
    write("base/msg/State.msg", "arm/Joint[] joints\nuint8 gear 2\n");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let types = |arguments: &[&str]| {
        let mut command = nervure(folder.path());
        command.arg("types").args(arguments);
        output(command)
    };
    let (code, text, error) = types(&["list", "msgs"]);
    assert_eq!(
        (code, &*text),
        (Some(0), "TYPE\narm/Joint@2   A joint\nbase/State@1\n"),
        "{error}"
    );
    let (code, text, error) = types(&["list", "--json", "msgs/base/msg/State.msg", "msgs"]);
    assert_eq!(code, Some(0), "{error}");
    let names: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<&Value> = names
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["base/State@1", "arm/Joint@2", "base/State@1"]);
    let (code, text, error) = types(&["show", "msgs/arm/Joint.msg"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(
        text.starts_with("arm/Joint@2\nA joint. It turns.\n"),
        "{text}"
    );
    let (code, text, error) = types(&["generate", "-l", "python", "msgs"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(
        text.contains("= \"arm/Joint@2\"") && text.contains("= \"base/State@1\""),
        "{text}"
    );
    for (arguments, expected) in [
        (
            &["show", "msgs"][..],
            "`nervure types list msgs` lists them",
        ),
        (
            &["list", "msgs/arm"],
            "msgs/arm/Joint.msg has no namespace: expected the folder around it",
        ),
        (&["list", "empty"], "the folder empty has no definitions"),
        // Its package is not among the files.
        (
            &["show", "msgs/base/msg/State.msg"],
            "State.msg:1:1: found `arm/Joint`, expected a type with a definition",
        ),
    ] {
        let (code, _, error) = types(arguments);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
