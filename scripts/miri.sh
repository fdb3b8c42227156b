#!/usr/bin/env bash
# Runs the unit tests of the message crate under Miri. Shared memory itself needs mmap and futexes, which Miri does not
# support: loom and AddressSanitizer cover it.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "error: Miri is not installed: rustup +nightly component add miri" >&2
    exit 1
fi
CARGO_TARGET_DIR=target/miri cargo +nightly miri test --quiet --locked --package nervure-message --lib
