#!/bin/bash
# Makes a tarball with the program, linked statically, for machines without a package: `make tarball`. It lies in target/
# afterwards. Unpacked anywhere, bin/seekless runs on every Linux of this processor, with any C library or none.
#
# The C library is this machine's glibc (libc.a, of libc6-dev): it needs no other toolchain than the one that is here. The
# same sources make the same tarball.
set -eu -o pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)
triple=$(uname -m)-unknown-linux-gnu
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
target=${CARGO_TARGET_DIR:-target}/static
name=seekless-$version-linux-$(uname -m)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# Of a proc-macro, which the compiler loads, nothing may be static; so the target is named, and the flag is for it alone.
RUSTFLAGS='-C target-feature=+crt-static' CARGO_TARGET_DIR=$target \
    cargo build --release --locked -p seekless-host --bin seekless --target "$triple"
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
echo "made target/$name.tar.gz; to use it: tar xf $name.tar.gz, and $name/bin/seekless --help"
