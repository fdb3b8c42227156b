use std::time::Duration;

use nervure_message::{Header, JsonSample, Metadata};
use nervure_protocol::graph::StaticTransform;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sample::Sample;

const NONE: [f64; 4] = [0.0, 0.0, 0.0, 1.0];
const SECOND: i64 = 1_000_000_000;
/// A time of today, so that seconds as a `f64` have their usual error.
const START: i64 = 1_790_000_000 * SECOND + 123_456_789;

/// Homogeneous matrices, by rows.
type Matrix = [[f64; 4]; 4];

fn add(tree: &mut TransformTree, parent: &str, child: &str, at: i64, x: f64) {
    let added = tree.add(parent, child, Some(START + at), [x, 0.0, 0.0], NONE);
    added.unwrap();
}

fn failure(tree: &TransformTree, target: &str, source: &str, at: i64) -> LookupFailure {
    *tree.lookup(target, source, START + at).unwrap_err().reason
}

fn edge(parent: &str, child: &str) -> Edge {
    Edge {
        parent: parent.to_owned(),
        child: child.to_owned(),
    }
}

fn error(tree: &TransformTree, target: &str, source: &str, at: i64) -> String {
    tree.lookup(target, source, START + at)
        .unwrap_err()
        .to_string()
}

#[test]
fn between_samples_is_interpolated_and_beyond_them_nothing() {
    let mut tree = TransformTree::default();
    let quarter = std::f64::consts::FRAC_1_SQRT_2;
    add(&mut tree, "map", "base", 0, 1.0);
    let turned = [0.0, 0.0, quarter, quarter];
    tree.add("map", "base", Some(START + SECOND), [3.0, 0.0, 0.0], turned)
        .unwrap();
    let half = tree.lookup("map", "base", START + SECOND / 2).unwrap();
    assert_eq!(half.translation, [2.0, 0.0, 0.0]);
    let eighth = std::f64::consts::PI / 8.0;
    assert!((half.rotation[2] - eighth.sin()).abs() < 1e-12);
    assert!((half.rotation[3] - eighth.cos()).abs() < 1e-12);
    assert_eq!(half.stamp, Some(START + SECOND / 2));
    let by = Duration::from_nanos(1);
    let edge = edge("map", "base");
    assert_eq!(
        failure(&tree, "map", "base", SECOND + 1),
        LookupFailure::Late {
            edge: edge.clone(),
            by,
            is_only: false
        }
    );
    assert_eq!(
        failure(&tree, "base", "map", -1),
        LookupFailure::Early {
            edge,
            by,
            is_only: false
        }
    );
}

#[test]
fn one_sample_answers_its_own_stamp_alone_and_a_static_one_any() {
    let mut tree = TransformTree::default();
    add(&mut tree, "map", "base", 0, 1.0);
    let mount = StaticTransform {
        parent: "base".to_owned(),
        child: "camera".to_owned(),
        translation: [0.0, 0.0, 0.5],
        rotation: NONE,
    };
    tree.add_static(&mount).unwrap();
    let found = tree.lookup("map", "camera", START).unwrap();
    assert_eq!(found.translation, [1.0, 0.0, 0.5]);
    assert_eq!(
        error(&tree, "map", "camera", 34_000_000),
        "`map` -> `camera`: the only transform of `map -> base` is 34 ms older than the requested time"
    );
    let mounted = tree.lookup("camera", "base", START + 90 * SECOND).unwrap();
    assert_eq!(mounted.translation, [0.0, 0.0, -0.5]);
    let mounted = tree.lookup("base", "camera", LookupTime::Latest).unwrap();
    assert_eq!(mounted.stamp, None);
}

#[test]
fn latest_is_the_newest_time_that_the_whole_chain_covers() {
    let mut tree = TransformTree::default();
    for (at, x) in [(0, 0.0), (SECOND, 1.0), (2 * SECOND, 2.0)] {
        add(&mut tree, "map", "odom", at, x);
    }
    add(&mut tree, "odom", "base", SECOND / 2, 10.0);
    add(&mut tree, "odom", "base", SECOND + SECOND / 2, 10.0);
    let found = tree.lookup("map", "base", None).unwrap();
    assert_eq!(found.stamp, Some(START + SECOND + SECOND / 2));
    assert_eq!(found.translation, [11.5, 0.0, 0.0]);
    add(&mut tree, "base", "arm", 3 * SECOND, 0.0);
    assert_eq!(
        tree.lookup("map", "arm", None).unwrap_err().to_string(),
        "`map` -> `arm`: newest transform of `odom -> base` is 1.5 s older than the oldest of `base -> arm`"
    );
}

#[test]
fn an_error_names_the_transform_that_is_furthest_behind() {
    let mut tree = TransformTree::default();
    for (parent, child, newest) in [
        ("map", "odom", 60),
        ("odom", "base", 66),
        ("base", "arm", 80),
    ] {
        add(&mut tree, parent, child, 0, 0.0);
        add(&mut tree, parent, child, newest * 1_000_000, 0.0);
    }
    assert_eq!(
        error(&tree, "odom", "arm", 100_000_000),
        "`odom` -> `arm`: newest transform of `odom -> base` is 34 ms older than the requested time"
    );
    assert_eq!(
        error(&tree, "arm", "map", 100_000_000),
        "`arm` -> `map`: newest transform of `map -> odom` is 40 ms older than the requested time"
    );
}

#[test]
fn an_error_names_the_nearest_frame_and_the_roots_of_trees() {
    let mut tree = TransformTree::default();
    add(&mut tree, "map", "base_link", 0, 0.0);
    add(&mut tree, "world", "gps", 0, 0.0);
    assert_eq!(
        error(&tree, "map", "baselink", 0),
        "`map` -> `baselink`: there is no frame `baselink`; did you mean `base_link`?"
    );
    assert!(matches!(
        failure(&tree, "lost", "lost", 0),
        LookupFailure::UnknownFrame { .. }
    ));
    assert_eq!(
        error(&tree, "base_link", "gps", 0),
        "`base_link` -> `gps`: no transforms connect them: they are in the trees of `map` and `world`"
    );
}

#[test]
fn a_time_in_seconds_finds_the_sample_of_that_stamp() {
    for offset in 0..2_000 {
        let mut tree = TransformTree::default();
        let at = offset * 7_919;
        add(&mut tree, "map", "base", at, 1.0);
        let seconds = (START + at) as f64 / 1e9;
        let found = tree.lookup("map", "base", LookupTime::Seconds(seconds));
        assert_eq!(found.unwrap().stamp, Some(START + at));
        let far = LookupTime::Seconds(seconds + 2e-6);
        let error = tree.lookup("map", "base", far).unwrap_err();
        assert!(matches!(*error.reason, LookupFailure::Late { .. }));
    }
}

#[test]
fn ten_seconds_are_kept_and_a_clock_that_jumps_back_begins_again() {
    let mut tree = TransformTree::default();
    for at in 0..25 {
        add(&mut tree, "map", "base", at * SECOND, at as f64);
    }
    let kept = tree.lookup("map", "base", START + 14 * SECOND).unwrap();
    assert_eq!(kept.translation[0], 14.0);
    assert!(matches!(
        failure(&tree, "map", "base", 13 * SECOND),
        LookupFailure::Early { by, .. } if by == Duration::from_secs(1)
    ));
    for at in 0..9 {
        let old = tree.add("map", "base", Some(START + at), [0.0; 3], NONE);
        assert!(matches!(old, Err(Refused::Old { .. })));
    }
    add(&mut tree, "map", "base", SECOND, 7.0);
    let found = tree.lookup("map", "base", None).unwrap();
    assert_eq!(found.stamp, Some(START + SECOND));
}

#[test]
fn a_producer_with_wrong_stamps_fills_no_memory() {
    let mut tree = TransformTree::default();
    let mut refused = 0;
    for at in 0..1_000_100_i64 {
        // All within ten seconds.
        let stamp = Some(START + at * 9_000);
        refused += usize::from(tree.add("map", "base", stamp, [0.0; 3], NONE).is_err());
    }
    assert_eq!(refused, 100);
    let mut tree = TransformTree::default();
    for at in 0..3_000 {
        add(&mut tree, "map", "base", at * SECOND, 0.0);
    }
}

#[test]
fn hostile_transforms_are_refused_and_change_nothing() {
    let mut tree = TransformTree::default();
    add(&mut tree, "map", "odom", 0, 1.0);
    add(&mut tree, "odom", "base", 0, 1.0);
    let before = format!("{tree:?}");
    let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for number in numbers {
        let added = tree.add("map", "a", Some(0), [0.0, number, 0.0], NONE);
        assert!(matches!(added, Err(Refused::NotFinite { .. })));
        let added = tree.add("map", "a", Some(0), [0.0; 3], [0.0, 0.0, 0.0, number]);
        assert!(matches!(added, Err(Refused::NotFinite { .. })));
    }
    for rotation in [[0.0; 4], [0.0, 0.0, 0.0, 2.0], [f64::MAX; 4], [1e-300; 4]] {
        let added = tree.add("map", "a", Some(0), [0.0; 3], rotation);
        assert!(
            matches!(added, Err(Refused::NotUnit { .. })),
            "{rotation:?}"
        );
    }
    for (parent, child) in [("base", "map"), ("map", "map"), ("odom", "odom")] {
        let added = tree.add(parent, child, Some(0), [0.0; 3], NONE);
        assert!(matches!(added, Err(Refused::Cycle { .. })), "{added:?}");
    }
    assert_eq!(
        tree.add("map", "base", Some(START), [0.0; 3], NONE),
        Err(Refused::TwoParents {
            edge: edge("map", "base"),
            parent: "odom".to_owned()
        })
    );
    let fixed = tree.add("odom", "base", None, [0.0; 3], NONE);
    assert!(matches!(fixed, Err(Refused::Static { .. })));
    assert_eq!(format!("{tree:?}"), before);
    // Stamps at both ends of time.
    for stamp in [i64::MIN, i64::MAX, 0, -1] {
        let name = stamp.to_string();
        tree.add("map", &name, Some(stamp), [f64::MAX; 3], NONE)
            .unwrap();
        for time in [i64::MIN, i64::MAX, 0] {
            for (target, source) in [("map", &*name), (&*name, "map"), ("base", &*name)] {
                let _ = tree.lookup(target, source, time);
                let _ = tree.lookup(target, source, None);
            }
        }
        for seconds in [f64::NAN, f64::INFINITY, -1e300] {
            let _ = tree.lookup("map", &name, LookupTime::Seconds(seconds));
        }
    }
}

#[test]
fn numbers_that_grow_beyond_a_float_are_an_error() {
    for stamp in [None, Some(START)] {
        let mut tree = TransformTree::default();
        for (parent, child) in [("map", "odom"), ("odom", "base")] {
            tree.add(parent, child, stamp, [f64::MAX; 3], NONE).unwrap();
        }
        for time in [LookupTime::Latest, LookupTime::At(START)] {
            let error = tree.lookup("map", "base", time).unwrap_err();
            assert_eq!(
                *error.reason,
                LookupFailure::NotFinite,
                "{stamp:?} {time:?}"
            );
        }
    }
}

fn sample(value: &serde_json::Value, frame: Option<&str>) -> Sample {
    let value = JsonSample::new(value).unwrap();
    let header = Header {
        stamp: START,
        frame_id: u64::from(frame.is_some()),
        ..Header::default()
    };
    Sample::local(&value, &Metadata::new(), header, frame).unwrap()
}

#[test]
fn samples_that_are_no_transforms_are_refused() {
    let long = "f".repeat(1 << 20);
    let value = |child: &str| {
        json!({
            "child_frame_id": child,
            "translation": {"x": 1.0, "y": 2.0, "z": 3.0},
            "rotation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0},
        })
    };
    let mut tree = TransformTree::default();
    let mut refused = |value: &serde_json::Value, frame| {
        let added = tree.add_sample(&sample(value, frame));
        added.unwrap_err()
    };
    assert_eq!(refused(&value("base"), None), Refused::NoParent);
    assert_eq!(refused(&value(""), Some("map")), Refused::NoParent);
    let bytes = 1 << 20;
    assert_eq!(
        refused(&value(&long), Some("map")),
        Refused::LongName { bytes }
    );
    assert_eq!(
        refused(&value("base"), Some(&long)),
        Refused::LongName { bytes }
    );
    for other in [
        json!({"x": 1.0}),
        json!([1, 2]),
        json!({"child_frame_id": 3}),
    ] {
        let refused = refused(&other, Some("map"));
        assert!(matches!(refused, Refused::Unreadable { .. }), "{refused:?}");
    }
    tree.add_sample(&sample(&value("base"), Some("map")))
        .unwrap();
    let found = tree.lookup("map", "base", START).unwrap();
    assert_eq!(found.translation, [1.0, 2.0, 3.0]);
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| (0..4).map(|k| a[row][k] * b[k][column]).sum())
    })
}

/// The inverse of a rigid transform.
fn inverse(m: &Matrix) -> Matrix {
    let mut inverse: Matrix = std::array::from_fn(|row| {
        std::array::from_fn(|column| match (row, column) {
            (0..3, 0..3) => m[column][row],
            (3, 3) => 1.0,
            _ => 0.0,
        })
    });
    let translation: [f64; 3] =
        std::array::from_fn(|row| -(0..3).map(|k| inverse[row][k] * m[k][3]).sum::<f64>());
    for (row, value) in inverse.iter_mut().zip(translation) {
        row[3] = value;
    }
    inverse
}

/// The matrix of a rotation about an axis, by Rodrigues' formula, and a translation.
fn matrix(axis: [f64; 3], angle: f64, translation: [f64; 3]) -> Matrix {
    let [x, y, z] = axis;
    let (s, c) = angle.sin_cos();
    let cross = [[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]];
    std::array::from_fn(|row| {
        std::array::from_fn(|column| match (row, column) {
            (3, 3) => 1.0,
            (3, _) => 0.0,
            (_, 3) => translation[row],
            _ => {
                let own = f64::from(u8::from(row == column));
                c * own + s * cross[row][column] + (1.0 - c) * axis[row] * axis[column]
            }
        })
    })
}

/// A frame that turns about an axis and moves along a line, at constant speed.
#[derive(Clone, Debug)]
struct Motion {
    /// Index of the parent among the frames before this one.
    parent: usize,
    axis: [f64; 3],
    /// Angle at both ends of a second; less than half a turn apart.
    angles: [f64; 2],
    positions: [[f64; 3]; 2],
}

impl Motion {
    fn angle_and_position(&self, part: f64) -> (f64, [f64; 3]) {
        let between = |a: f64, b: f64| a + part * (b - a);
        let [first, last] = self.positions;
        (
            between(self.angles[0], self.angles[1]),
            std::array::from_fn(|at| between(first[at], last[at])),
        )
    }
}

fn motion(frames: usize) -> impl Strategy<Value = Motion> {
    let vector = || prop::array::uniform3(-10.0..10.0_f64);
    let axis = vector().prop_filter_map("a zero vector has no direction", |[x, y, z]| {
        let norm = (x * x + y * y + z * z).sqrt();
        (norm > 0.1).then(|| [x / norm, y / norm, z / norm])
    });
    (
        0..frames,
        axis,
        -3.0..3.0_f64,
        -3.0..3.0_f64,
        vector(),
        vector(),
    )
        .prop_map(|(parent, axis, angle, turn, first, last)| Motion {
            parent,
            axis,
            angles: [angle, angle + turn],
            positions: [first, last],
        })
}

proptest! {
    /// Against the product of matrices, whose angles and positions are interpolated directly.
    #[test]
    fn lookups_equal_products_of_matrices(
        motions in (1..12_usize).prop_flat_map(|count| (0..count).map(|at| motion(at + 1)).collect::<Vec<_>>()),
        target in any::<prop::sample::Index>(),
        source in any::<prop::sample::Index>(),
        part in 0.0..=1.0_f64,
    ) {
        let name = |frame: usize| format!("frame{frame}");
        let mut tree = TransformTree::default();
        for (at, motion) in motions.iter().enumerate() {
            for (end, part) in [(0, 0.0), (SECOND, 1.0)] {
                let (angle, position) = motion.angle_and_position(part);
                let [x, y, z] = motion.axis.map(|it| it * (angle / 2.0).sin());
                let rotation = [x, y, z, (angle / 2.0).cos()];
                tree.add(&name(motion.parent), &name(at + 1), Some(START + end), position, rotation).unwrap();
            }
        }
        let nanos = (part * SECOND as f64).round();
        let in_root = |mut frame: usize| {
            let mut pose = matrix([1.0, 0.0, 0.0], 0.0, [0.0; 3]);
            while frame > 0 {
                let motion = &motions[frame - 1];
                let (angle, position) = motion.angle_and_position(nanos / SECOND as f64);
                pose = product(&matrix(motion.axis, angle, position), &pose);
                frame = motion.parent;
            }
            pose
        };
        let (target, source) = (target.index(motions.len() + 1), source.index(motions.len() + 1));
        let found = tree.lookup(&name(target), &name(source), START + nanos as i64).unwrap();
        let expected = product(&inverse(&in_root(target)), &in_root(source));
        for (found, expected) in found.matrix().iter().flatten().zip(expected.iter().flatten()) {
            prop_assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
    }
}

/// A number of any size, or none.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), -1.0..1.0_f64, Just(0.0), Just(1.0)]
}

proptest! {
    /// Names from a few, so that parents, cycles and kinds contradict each other.
    #[test]
    fn no_sequence_of_transforms_panics_or_gives_numbers_that_are_not_finite(
        transforms in prop::collection::vec(
            (
                "[a-d]", "[a-d]", prop::option::weighted(0.8, prop_oneof![any::<i64>(), 0..20 * SECOND]),
                prop::array::uniform3(any_number()), prop::array::uniform4(any_number()),
            ),
            1..60,
        ),
        times in prop::collection::vec(prop_oneof![any::<i64>(), 0..20 * SECOND], 4),
    ) {
        let mut tree = TransformTree::default();
        for (parent, child, stamp, translation, rotation) in &transforms {
            let _ = tree.add(parent, child, *stamp, *translation, *rotation);
            let _ = tree.add(parent, child, *stamp, *translation, NONE);
        }
        let times = times.into_iter().map(LookupTime::At).chain([LookupTime::Latest]);
        for time in times {
            for (target, source) in [("a", "b"), ("b", "a"), ("c", "d"), ("a", "d"), ("d", "d")] {
                match tree.lookup(target, source, time) {
                    Ok(found) => prop_assert!(found.matrix().iter().flatten().all(|it| it.is_finite())),
                    Err(error) => prop_assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}
