//! The shared-memory plane passes the suite, does what the model does, and stays whole under stress.

use nervure_testkit::shared_memory::SharedMemory;

nervure_testkit::conformance!(SharedMemory);

#[test]
fn it_does_what_the_model_does() {
    nervure_testkit::random::compare_with_model(SharedMemory::default, 400);
}

#[test]
fn it_stays_whole_under_stress() {
    for seed in 0..3 {
        nervure_testkit::stress::stress(
            &SharedMemory::default(),
            seed,
            std::time::Duration::from_secs(1),
        );
    }
}
