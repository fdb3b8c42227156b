//! The model passes the suite too.

use nervure_testkit::model::Model;

nervure_testkit::conformance!(Model);

#[test]
fn it_passes_the_stress_test() {
    nervure_testkit::stress::stress(&Model::default(), 1, std::time::Duration::from_millis(500));
}
