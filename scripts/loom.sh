#!/usr/bin/env bash
# Runs the loom models: every interleaving, under the memory model of C11, of the lock-free structures.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
    cargo test --quiet --locked --release --package nervure-shm --lib
