use std::sync::Arc;

use super::{Language, generate};
use crate::{
    Definition, Format, Library, Sections, humble, standard, standard_names, standard_type,
};

fn own(name: &str, text: &str) -> Arc<Definition> {
    let mut sections = Sections::default();
    sections
        .add_file(Format::Message, name, name, text.as_bytes())
        .unwrap();
    let sources = [&sections, standard(), humble()];
    Library::new(&sources).definition(name).unwrap()
}

const LANGUAGES: [Language; 3] = [Language::Python, Language::Rust, Language::Cpp];

#[test]
fn a_type_comes_after_the_types_of_its_fields() {
    let odometry = standard_type(&"std/Odometry@1".parse().unwrap()).unwrap();
    for (language, word) in LANGUAGES
        .into_iter()
        .zip(["class ", "pub struct ", "struct "])
    {
        let code = generate(language, std::slice::from_ref(&odometry)).unwrap();
        let heads = code.lines().filter_map(|line| line.strip_prefix(word));
        let names: Vec<&str> = heads
            .map(|head| head.trim_end_matches([' ', '{', ':']))
            .collect();
        assert_eq!(
            names,
            [
                "Point",
                "Quaternion",
                "Pose",
                "PoseWithCovariance",
                "Vector3",
                "Twist",
                "TwistWithCovariance",
                "Odometry"
            ]
        );
    }
}

#[test]
fn standard_types_in_other_types_are_imported() {
    let arm = own(
        "my_robot/Arm",
        "string name \"left\"\nstd/Pose[] poses\nfloat32[3] limits [1, 2, 3]\n",
    );
    for (language, import) in LANGUAGES.into_iter().zip([
        "from nervure.types import Point, Pose, Quaternion\n",
        "use nervure_node::types::{Point, Pose, Quaternion};\n",
        "#include <nervure_types.hpp>\n",
    ]) {
        let code = generate(language, std::slice::from_ref(&arm)).unwrap();
        assert!(
            code.contains(import) && code.contains("my_robot/Arm@1"),
            "{code}"
        );
        assert!(!code.contains("std/Pose@1"), "{code}");
    }
}

#[test]
fn lists_of_truth_values_have_memory_of_their_own_in_cpp() {
    let hand = own("my/Hand", "bool[] touches\nbool[5] fingers\nbool is_open\n");
    let code = generate(Language::Cpp, &[hand]).unwrap();
    for line in [
        "#include <nervure.hpp>",
        "    std::vector<::nervure::Bool> touches;",
        "    std::array<bool, 5> fingers = {};",
    ] {
        assert!(code.lines().any(|found| found == line), "{code}");
    }
}

#[test]
fn words_of_a_language_and_equal_names_are_refused() {
    let lane = own("my/Lane", "int32 from\nint32 union\nint32 self\n");
    let refused = |language| {
        generate(language, std::slice::from_ref(&lane))
            .unwrap_err()
            .to_string()
    };
    let expected =
        "my/Lane: `from` is a word of Python, and cannot be the name of a field or constant";
    assert_eq!(refused(Language::Python), expected);
    assert!(refused(Language::Cpp).starts_with("my/Lane: `union` is a word of C++"));
    let code = generate(Language::Rust, &[lane]).unwrap();
    assert!(
        code.contains("    #[serde(rename = \"self\")]\n    pub self_: i32,\n"),
        "{code}"
    );
    let both = own("my/Both", "sensor_msgs/Imu first\nstd/Imu second\n");
    for language in LANGUAGES {
        let error = generate(language, std::slice::from_ref(&both)).unwrap_err();
        assert!(
            error.to_string().contains("would both be named `"),
            "{error}"
        );
    }
}

#[test]
fn every_type_of_the_set_has_its_code() {
    let all: Vec<_> = standard_names()
        .filter_map(|name| standard_type(&name))
        .collect();
    for language in LANGUAGES {
        let code = generate(language, &all).unwrap();
        for name in standard_names() {
            assert!(
                code.contains(&format!("\"{name}\"")),
                "{language:?} has no {name}"
            );
        }
        assert!(
            code.lines()
                .all(|line| line.chars().count() <= 110 && !line.ends_with(' '))
        );
    }
}
