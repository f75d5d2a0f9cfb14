#!/bin/bash
# Installs the package of `make deb` in a fresh Debian, runs the tutorial as it is written, and removes the package again:
# make deb-test. As root, with debootstrap; ROOT names a fresh system that is there already.
set -eu -o pipefail
cd "$(dirname "$0")/.."

deb=$(ls -t target/seekless_*.deb | head -n1)
suite=${SUITE:-bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
system=$work/system
cleanup() {
    for place in proc dev; do
        ! mountpoint -q "$system/$place" || umount --recursive --lazy "$system/$place"
    done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

say() { printf '== %s\n' "$*"; }
die() { printf 'failed: %s\n' "$*" >&2; exit 1; }
inside() { chroot "$system" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 "$@"; }
# Without what changes by itself, and what dpkg keeps of any package.
files() { (cd "$system" && find . -path ./proc -prune -o -path ./dev -prune -o -path ./tmp -prune -o -path ./root -prune -o -path './var/*' -prune -o -print | sort); }

[ -n "${ROOT:-}" ] || command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
say "a fresh $suite"
if [ -n "${ROOT:-}" ]; then
    cp -a "$ROOT" "$system"
else
    debootstrap --variant=minbase "$suite" "$system" "$mirror" >"$work/log" || { cat "$work/log"; exit 1; }
fi
mount --bind /dev "$system/dev"
mount -t proc proc "$system/proc"
files >"$work/before"

say "an older version installed, and upgraded while it has a mount"
dpkg-deb --raw-extract "$deb" "$work/older"
sed -i 's/^Version: .*/Version: 0.0.1/' "$work/older/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip --build "$work/older" "$system/tmp/older.deb" >/dev/null
cp "$deb" "$system/tmp/seekless.deb"
inside apt-get install -y --no-install-recommends /tmp/older.deb >"$work/log" 2>&1 || { cat "$work/log"; die "apt-get install"; }
inside sh -e -c '
    mkdir /mnt/kept && seekless mkfs -q "lfs / file:/srv/kept.img,size=64MiB"
    seekless mount "lfs / file:/srv/kept.img" /mnt/kept && echo before >/mnt/kept/file
' || die "a mount of the older version"
inside apt-get install -y --no-install-recommends /tmp/seekless.deb >"$work/log" 2>&1 || { cat "$work/log"; die "the upgrade"; }
inside dpkg -i /tmp/seekless.deb >"$work/log" 2>&1 || { cat "$work/log"; die "the same version once more"; }
inside sh -e -c '
    test "$(dpkg-query -W -f "\${Version}" seekless)" != 0.0.1
    grep -q before /mnt/kept/file && echo after >/mnt/kept/file && seekless umount /mnt/kept
    seekless mount "lfs / file:/srv/kept.img" /mnt/kept && grep -q after /mnt/kept/file && seekless umount /mnt/kept
    rmdir /mnt/kept && rm /srv/kept.img
' || die "a mount across the upgrade"
inside seekless --version

say "mount -t, mkfs -t, fsck -t and an installed experiment"
inside sh -e -c '
    cd /srv && mkdir /etc/seekless /mnt/data
    mkfs -t seekless "lfs / file:/srv/data.img,size=64MiB" >/dev/null
    echo "stack = \"lfs / file:/srv/data.img\"" >/etc/seekless/data.toml
    echo "@/etc/seekless/data.toml /mnt/data seekless defaults 0 0" >>/etc/fstab
    mount /mnt/data && echo text >/mnt/data/file && umount /mnt/data
    fsck.seekless -n "lfs / file:/srv/data.img" >/dev/null
    mount /mnt/data && grep -q text /mnt/data/file && umount /mnt/data
    seekless run ro92-fig3 --quick --out results >/dev/null
    test -s results/rows.csv && rm -r results /srv/data.img /etc/seekless /mnt/data
    sed -i /seekless/d /etc/fstab
' || die "an installed program"
if command -v systemd-analyze >/dev/null; then
    cp "$system/usr/lib/systemd/system/seekless@.service" "$work/seekless@srv-data.service"
    # The program is not where the unit says outside of the fresh system.
    sed -i "s#=/usr/bin/seekless#=/bin/true#" "$work/seekless@srv-data.service"
    systemd-analyze verify --man=no "$work/seekless@srv-data.service" || die "the unit"
fi

say "the tutorial, as it is written"
awk '
    /^```sh/ { run = $0 !~ /no-run/; next }
    /^```/ { run = 0; next }
    run
' docs/tutorial.md >"$system/srv/tutorial.sh"
inside sh -e -c '
    mkdir /srv/here && cd /srv/here && mkdir docs
    ln -s /usr/share/seekless/samples docs/samples && ln -s /usr/share/seekless/experiments experiments
    apt-get install -y --no-install-recommends fuse3 >/dev/null 2>&1
    bash -e ../tutorial.sh >../log 2>&1 || { tail -n 20 ../log; exit 1; }
    cd / && rm -r /srv/here /srv/tutorial.sh /srv/log
    apt-get purge -y --auto-remove fuse3 >/dev/null 2>&1
' || die "the tutorial"

say "removed, without debris"
inside apt-get purge -y --auto-remove seekless >"$work/log" 2>&1 || { cat "$work/log"; die "apt-get purge"; }
files >"$work/after"
diff "$work/before" "$work/after" || die "these are left, or gone"
say "all of that works"
