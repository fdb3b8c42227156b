//! The model passes the suite that it is the oracle of.

use nervure_testkit::model::Model;

nervure_testkit::conformance!(Model);

#[test]
fn the_stress_is_fair() {
    nervure_testkit::stress::stress(&Model::default(), 1, std::time::Duration::from_millis(500));
}
