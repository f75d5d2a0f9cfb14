#!/bin/bash
# Unpacks the tarball of `make tarball` where there is nothing else, no C library and no shell, and uses it: make tarball-test.
# As root, for chroot.
set -eu -o pipefail
cd "$(dirname "$0")/.."

tarball=$PWD/$(ls -t target/seekless-*-linux-*.tar.gz | head -n1)
work=$(mktemp -d)
cleanup() {
    for place in dev proc; do
        ! mountpoint -q "$work/$place" || umount --lazy "$work/$place"
    done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

say() { printf '== %s\n' "$*"; }
die() { printf 'failed: %s\n' "$*" >&2; exit 1; }
tar --extract --file="$tarball" --directory="$work" --strip-components=1
mkdir "$work/dev" "$work/proc" "$work/tmp" "$work/mnt"
mount -t proc proc "$work/proc" # by which the program finds itself, and its experiments
inside() { chroot "$work" /bin/seekless "$@"; }

say "a root directory with the tarball alone: $(cd "$work" && echo *)"
inside --version
say "a trace, an experiment, a volume"
inside replay /share/seekless/samples/shop.trace --on disk:nearline-4tb --on ssd:nvme-a --timing open | tail -n 1
inside run ro92-fig8 --quick --out /tmp/results | grep 'claims hold'
inside mkfs -q 'lfs / file:/tmp/a.img,size=64MiB'
inside fsck 'lfs / file:/tmp/a.img'
if [ -c /dev/fuse ]; then
    say "a mount"
    mount --bind /dev "$work/dev"
    inside mount 'lfs / file:/tmp/a.img' /mnt
    echo written >"$work/mnt/file"
    inside sync /mnt
    inside umount /mnt
    inside fsck --data 'lfs / file:/tmp/a.img'
    inside mount 'lfs / file:/tmp/a.img' /mnt
    [ "$(cat "$work/mnt/file")" = written ] || die "what was written is not there"
    inside umount /mnt
else
    say "no mount: this machine has no /dev/fuse"
fi
say "done: $(du -h "$tarball" | cut -f1) packed, $(du -sh "$work/bin" | cut -f1) unpacked"
