//! The model passes the suite that it is the oracle of.

nervure_testkit::conformance!(nervure_testkit::model::Model::default());
