//! The shared-memory plane passes the suite.

nervure_testkit::conformance!(nervure_testkit::shared_memory::SharedMemory::default());
