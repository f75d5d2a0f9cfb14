#!/bin/bash
# Makes a Debian package of target/release/seekless: `make deb`. It lies in target/ afterwards.
#
# What `make install` installs, the links by which mount(8), mkfs(8) and fsck(8) find the program, and a unit for systemd.
# Needs dpkg-deb, and dpkg-shlibdeps (of dpkg-dev) for the versions of the libraries. MAINTAINER names who made it.
set -eu -o pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)
architecture=$(dpkg --print-architecture)
# The date of the last commit, so that the same sources make the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
maintainer="Seekless maintainers <maintainers@seekless.invalid>"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
package=$root/package

scripts/install.sh "$package/usr" >/dev/null
install -d "$package/usr/sbin"
# The types that the kernel's table of mounts has are those of a remount.
for name in mount.seekless mount.fuse.seekless mount.fuseblk.seekless mkfs.seekless fsck.seekless; do
    ln -s ../bin/seekless "$package/usr/sbin/$name"
done
install -D -m 644 scripts/seekless@.service "$package/usr/lib/systemd/system/seekless@.service"
doc=$package/usr/share/doc/seekless
install -D -m 644 README.md "$doc/README.md"
gzip -9n <CHANGELOG.md >"$doc/NEWS.gz"
gzip -9n >"$doc/changelog.gz" <<END
seekless ($version) unstable; urgency=medium

  * See NEWS.gz.

 -- ${MAINTAINER:-$maintainer}  $(date -Ru -d "@$SOURCE_DATE_EPOCH")
END
cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: seekless

Files: *
Copyright: the Seekless maintainers
License: MIT or Apache-2.0
 On Debian systems, the text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0. The MIT license:
 .
$(sed 's/^$/./; s/^/ /' LICENSE-MIT)
END
# Names of the links, in the section of the commands that call them.
for page in mount mkfs fsck; do
    install -d "$package/usr/share/man/man8"
    echo ".so man1/seekless-$page.1" >"$package/usr/share/man/man8/$page.seekless.8"
done
find "$package/usr/share/man" -type f -exec gzip -9n {} +
# Only what the program itself needs; everything else is for those who want it.
depends="libc6, libgcc-s1"
if command -v dpkg-shlibdeps >/dev/null; then
    mkdir -p "$root/debian"
    printf 'Source: seekless\nPackage: seekless\nArchitecture: any\n' >"$root/debian/control"
    depends=$(cd "$root" && dpkg-shlibdeps -O "$package/usr/bin/seekless" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
fi
mkdir "$package/DEBIAN"
cat >"$package/DEBIAN/control" <<END
Package: seekless
Version: $version
Architecture: $architecture
Maintainer: ${MAINTAINER:-$maintainer}
Section: otherosfs
Priority: optional
Depends: $depends
Recommends: fuse3
Installed-Size: $(du -sk --apparent-size "$package/usr" | cut -f1)
Description: log-structured and other file systems, mounted and simulated
 A log-structured file system, the Fast File System, compressing and encrypting
 layers, a virtual log disk and arrays: mounted over FUSE on real storage, or in
 virtual time on models of disks, where they reproduce published results and
 answer which layout, layer and storage suits a workload.
END
(cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$package" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
deb=target/seekless_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$package" "$deb" >/dev/null
echo "made $deb; to install it: apt install ./$deb"
