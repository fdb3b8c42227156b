#!/usr/bin/env bash
# Runs the loom models: every interleaving of the lock-free structures that the memory model of C11 allows.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="--cfg loom -D warnings" CARGO_TARGET_DIR=target/loom \
    cargo test --quiet --locked --release --package nervure-shm --test loom
