#!/usr/bin/env bash
# Builds one wheel per architecture, with module, command and the APIs for C and C++, into dist/:
# `scripts/wheel.sh [ARCHITECTURE..]`.
#
# zig links against the glibc of manylinux2014 (2.17), whatever the glibc of this machine, and for other architectures.
set -euo pipefail
cd "$(dirname "$0")/.."
architectures=("${@:-$(uname -m)}")
bin=$PWD/.venv/bin
installed=$(rustup target list --installed)
for architecture in "${architectures[@]}"; do
    target=$architecture-unknown-linux-gnu
    if ! grep -qx "$target" <<<"$installed"; then
        echo "error: Rust has no standard library for $architecture here: rustup target add $target" >&2
        exit 1
    fi
done
for architecture in "${architectures[@]}"; do
    target=$architecture-unknown-linux-gnu
    # cargo-zigbuild finds zig as a Python package beside it.
    PATH=$bin:$PATH "$bin/cargo-zigbuild" zigbuild --profile dist --locked --package nervure-cli --target "$target.2.17"
    install -D -m 755 "target/$target/dist/nervure" bindings/python/data/scripts/nervure
    # What stands in data/data goes into the environment's own folders include and lib.
    rm -rf bindings/python/data/data
    ./scripts/native.py bindings/python/data/data --profile dist --target "$target"
    (cd bindings/python && PATH=$bin:$PATH "$bin/maturin" build --profile dist --locked --zig --target "$target" \
        --compatibility manylinux2014 --out ../../dist)
done
# `make demo` installs from this folder too, and would take old libraries.
rm -rf bindings/python/data/data
