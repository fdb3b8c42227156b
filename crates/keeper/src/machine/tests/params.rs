//! Parameters that are read and changed while the dataflow runs.

use std::time::Duration;

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Hello, Message, SetParam},
    keeper_to_cli::Message as Answer,
    params::{Param, ParamKind, ParamSpec},
};
use serde_json::{Number, Value, json};

use super::{World, drop_oldest, node};
use crate::{
    machine::End,
    plan::RestartPolicy::{Never, OnFailure},
};

fn world() -> World {
    let mut camera = node("camera", OnFailure);
    let spec = |name: &str, value: Value, read_only| ParamSpec {
        name: name.to_owned(),
        kind: ParamKind::of(&value).unwrap(),
        value,
        min: Some(Number::from(1)),
        max: None,
        one_of: Vec::new(),
        read_only,
        description: None,
    };
    camera.settings.params = vec![
        spec("fps", json!(30), false),
        spec("width", json!(640), true),
    ];
    let mut world = World::running(vec![camera, node("sink", Never)], &[drop_oldest(0, 1)]);
    world.ask(
        1,
        Message::Hello(Hello {
            versions: VERSIONS,
            program: "param".to_owned(),
        }),
    );
    world
}

fn set(
    world: &mut World,
    node: &str,
    name: &str,
    value: Value,
) -> Result<(), (String, Option<String>)> {
    let set = SetParam {
        node: node.to_owned(),
        name: name.to_owned(),
        value,
    };
    match world.ask(1, Message::SetParam(set)) {
        Answer::Done => Ok(()),
        Answer::Refused(refused) => Err((refused.reason, refused.hint)),
        other => panic!("{other:?}"),
    }
}

fn param(name: &str, value: Value) -> Param {
    Param {
        name: name.to_owned(),
        value,
    }
}

#[test]
fn a_change_reaches_the_node_once_and_outlives_its_process() {
    let mut world = world();
    let first = [param("fps", json!(30)), param("width", json!(640))];
    assert_eq!(world.processes[0].params, first);
    set(&mut world, "camera", "fps", json!(60)).unwrap();
    set(&mut world, "camera", "fps", json!(60)).unwrap();
    assert_eq!(
        world.processes[0].params[2..],
        [param("fps", json!(60))],
        "what is so already is no change"
    );
    world.exit(0, End::Signal(9));
    set(&mut world, "camera", "fps", json!(15)).unwrap();
    world.advance(Duration::from_secs(1));
    world.hello(0);
    assert_eq!(
        world.processes[0].params,
        [param("fps", json!(15)), param("width", json!(640))]
    );
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("parameter `fps` is 15, it was 60: set by `param@1001`"))
    );
}

#[test]
fn a_value_that_is_not_allowed_is_refused_and_not_sent() {
    let mut world = world();
    let reason = |result: Result<(), (String, Option<String>)>| result.unwrap_err();
    assert_eq!(
        reason(set(&mut world, "camera", "fps", json!(0))),
        (
            "node `camera`: parameter `fps` is at least 1, got 0".to_owned(),
            None
        )
    );
    assert!(
        reason(set(&mut world, "camera", "width", json!(320)))
            .0
            .contains("`width` is read-only")
    );
    let (text, hint) = reason(set(&mut world, "camera", "fsp", json!(1)));
    assert_eq!(text, "node `camera` has no parameter `fsp`");
    assert_eq!(hint.as_deref(), Some("did you mean `fps`?"));
    assert!(
        reason(set(&mut world, "sink", "fps", json!(1)))
            .1
            .unwrap()
            .starts_with("it has none")
    );
    assert_eq!(
        reason(set(&mut world, "sun", "fps", json!(1))).0,
        "there is no node `sun`"
    );
    assert_eq!(world.processes[0].params.len(), 2);
}

#[test]
fn parameters_are_listed_with_their_current_values() {
    let mut world = world();
    set(&mut world, "camera", "fps", json!(60)).unwrap();
    let before = world.replies[&1].len();
    world.ask(1, Message::Params { node: None });
    let [Answer::Params { node, params }, Answer::Done] = &world.replies[&1][before..] else {
        panic!("{:?}", world.replies[&1])
    };
    assert_eq!((node.as_str(), params.len()), ("camera", 2));
    assert_eq!(
        (&params[0].value, &params[0].spec.value),
        (&json!(60), &json!(30))
    );
    assert!(matches!(
        world.ask(
            1,
            Message::Params {
                node: Some("sun".to_owned())
            }
        ),
        Answer::Refused(_)
    ));
}
