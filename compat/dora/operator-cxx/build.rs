//! Generates the header and the source of the C++ side in `OUT_DIR`, and links to both in
//! `target/cxxbridge/dora-operator-api-cxx`. Programs compile the source, which includes their
//! `operator.h`.

fn main() {
    let _ = cxx_build::bridge("src/lib.rs");
    println!("cargo:rerun-if-changed=src/lib.rs");
}
