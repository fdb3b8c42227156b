//! Generates the header and the source of the C++ side in `OUT_DIR`, and links to both in
//! `target/cxxbridge/dora-node-api-cxx`. Programs compile the source: the library must not depend on a
//! C++ standard library.

fn main() {
    let _ = cxx_build::bridge("src/lib.rs");
    println!("cargo:rerun-if-changed=src/lib.rs");
}
