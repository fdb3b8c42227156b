#!/usr/bin/env bash
# Runs the tests of crates under AddressSanitizer: `scripts/asan.sh [--all]`. Needs a nightly toolchain:
# rustup toolchain install nightly
set -euo pipefail
cd "$(dirname "$0")/.."

crates=(nervure-shm nervure-message nervure-testkit nervure-c)
# dora's API takes three quarters of the time, since it brings another Arrow.
dora=()
[ "${1:-}" = --all ] && dora=(dora-node-api-c dora-node-api-cxx dora-operator-api dora-operator-api-c nervure-dora-operators)
[ "${#crates[@]}" -gt 0 ] || { echo "error: scripts/asan.sh lists no crate, so there is nothing to check" >&2; exit 1; }
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "error: AddressSanitizer needs a nightly toolchain: rustup toolchain install nightly" >&2
    exit 1
fi

host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/asan RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0
run() { cargo +nightly test --quiet --locked --target "$host" "${@/#/--package=}" --lib --tests; }
run "${crates[@]}"
[ "${#dora[@]}" -eq 0 ] || (cd compat/dora && run "${dora[@]}")
