//! The shared-memory plane passes the suite, behaves like the model, and passes the stress test.

use nervure_testkit::shared_memory::SharedMemory;

nervure_testkit::conformance!(SharedMemory);

#[test]
fn it_behaves_like_the_model() {
    nervure_testkit::random::compare_with_model(SharedMemory::default, 400);
}

#[test]
fn it_passes_the_stress_test() {
    for seed in 0..3 {
        nervure_testkit::stress::stress(
            &SharedMemory::default(),
            seed,
            std::time::Duration::from_secs(1),
        );
    }
}
