#!/usr/bin/env bash
# Runs every fuzz target: `scripts/fuzz.sh [SECONDS]`, 20 seconds each by default. Failing inputs are kept in
# fuzz/artifacts, the grown corpus in fuzz/corpus. Needs the nightly toolchain and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "SKIPPED: fuzzing with coverage needs a nightly toolchain and cargo-fuzz (cargo install cargo-fuzz)."
    echo "The tests of crates/fuzz-targets run every target without coverage."
    exit 0
fi
targets=$(cargo +nightly fuzz list)
[ -n "$targets" ] || { echo "error: there are no fuzz targets" >&2; exit 1; }
for target in $targets; do
    seeds=()
    case $target in
    dataflow) seeds=(crates/dataflow/tests/good crates/dataflow/tests/bad) ;;
    *) [ -d "fuzz/seeds/$target" ] && seeds=("fuzz/seeds/$target") ;;
    esac
    mkdir -p "fuzz/corpus/$target"
    echo "--- $target"
    cargo +nightly fuzz run -O "$target" "fuzz/corpus/$target" ${seeds[@]+"${seeds[@]}"} -- \
        -max_total_time="${1:-20}" -timeout=10 -print_final_stats=0 -verbosity=0
done
