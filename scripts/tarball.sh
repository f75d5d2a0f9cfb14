#!/bin/bash
# Makes a tarball with the program, linked statically, for machines without a package: `make tarball`. It lies in target/
# afterwards. Unpacked anywhere, bin/seekless runs on every Linux of this processor, with any C library or none.
#
# The C library is musl where the compiler has a standard library for it, or its sources: `rustup target add
# x86_64-unknown-linux-musl`, or `rustup component add rust-src`, or the packages of Debian and
#     RUSTC=/usr/bin/rustc scripts/tarball.sh      (on bookworm: rustc-web, rust-web-src)
# Otherwise it is this machine's glibc (libc.a, of libc6-dev), which needs nothing else. LIBC=glibc has it in any case.
# For musl it downloads zig from PyPI. The same sources and compiler make the same tarball.
set -eu -o pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)
processor=$(uname -m)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
target=${CARGO_TARGET_DIR:-target}/static
name=seekless-$version-linux-$processor
musl=$processor-unknown-linux-musl
library=$("${RUSTC:-rustc}" --print sysroot)/lib/rustlib
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# zig brings musl, and a compiler and a linker for C. It is downloaded, in the version that these scripts were tried with.
tools=$PWD/target/python/tools
has_zig() {
    { "$tools/bin/pip" --version >/dev/null 2>&1 || { rm -rf "$tools"; python3 -m venv "$tools"; }; } &&
        "$tools/bin/pip" install --quiet 'cargo-zigbuild==0.24.1' 'ziglang==0.17.1' && return
    echo "zig cannot be downloaded from PyPI, so the tarball has glibc in place of musl" >&2
    return 1
}

# Builds for musl with zig. `$1` is the command of cargo, the rest goes to the compiler.
with_zig() {
    local command=$1
    shift
    PATH=$tools/bin:$PATH CARGO_TARGET_DIR=$target \
        cargo-zigbuild "$command" --release --locked -p seekless-host --bin seekless --target "$musl" "$@"
}

triple=$musl
if [ "${LIBC:-}" != glibc ] && [ -d "$library/$musl/lib" ] && has_zig; then
    with_zig zigbuild
elif [ "${LIBC:-}" != glibc ] && [ -d "$library/src/rust/library" ] && has_zig; then
    # The standard library is built with the program. cargo calls that unstable, and so asks for this variable; the sources are
    # those of the compiler. The start files are zig's.
    RUSTC_BOOTSTRAP=1 with_zig rustc -Zbuild-std=std,panic_unwind -- -C link-self-contained=no
else
    # Of a proc-macro, which the compiler loads, nothing may be static; so the target is named, and the flag is for it alone.
    triple=$processor-unknown-linux-gnu
    RUSTFLAGS='-C target-feature=+crt-static' CARGO_TARGET_DIR=$target \
        cargo build --release --locked -p seekless-host --bin seekless --target "$triple"
fi
program=$target/$triple/release/seekless
if readelf -l "$program" | grep -q INTERP; then
    echo "$program needs a loader; is libc.a (libc6-dev) installed?" >&2
    exit 1
fi
PROGRAM=$program scripts/install.sh "$root/$name" >/dev/null
for file in README.md CHANGELOG.md LICENSE-*; do
    install -D -m 644 "$file" "$root/$name/$file"
done
mkdir -p target
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --directory="$root" "$name" |
    gzip -9n >"target/$name.tar.gz"
echo "made target/$name.tar.gz ($triple); to use it: tar xf $name.tar.gz, and $name/bin/seekless --help"
