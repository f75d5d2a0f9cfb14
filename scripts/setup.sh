#!/bin/bash
# Sees to it that what the project needs is there: `make setup`.
#
# Each row says by which command something is known to be there, which Debian package brings it, and what for. As root
# the missing packages are installed; as any other user the command that would is printed. Only what the build cannot
# do without ends in failure. May be run any number of times.
set -eu -o pipefail

needs='
cc              gcc            build     the linker for Rust programs
/usr/include/stdlib.h libc6-dev build    the headers and start files that the linker needs
fusermount3     fuse3          use       mounting as an ordinary user
losetup         mount          use       tests and the demonstration on block devices
mkfs.ext4       e2fsprogs      use       the file systems that benchmarks compare with
makefs          makefs         use       tests that read volumes of others
fls             sleuthkit      use       tests that have others read our volumes
grub-fstest     grub-common    use       tests that have others read our volumes
nbdcopy         libnbd-bin     use       tests of devices that are offered over NBD
qemu-img        qemu-utils     use       tests of devices that are offered over NBD
fio             fio            use       tests of devices that are offered over NBD
setfacl         acl            use       tests of access-control lists
rsync           rsync          use       tests of access-control lists
'

# Looks in the directories of root as well, where an ordinary user finds losetup.
PATH=$PATH:/usr/sbin:/sbin

say() { printf '%s\n' "$*" >&2; }

is_there() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing=
for_build=
while read -r probe package kind reason; do
    if [ -z "$probe" ] || is_there "$probe"; then continue; fi
    missing="$missing $package"
    if [ "$kind" = build ]; then for_build=yes; fi
    say "missing: $package ($reason)"
done <<<"$needs"

if [ -n "$missing" ]; then
    install="apt-get install -y --no-install-recommends$missing"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing:$missing"
        export DEBIAN_FRONTEND=noninteractive
        # Without lists, as in a fresh container, nothing is found.
        if ! $install >&2; then
            apt-get update >&2
            $install >&2
        fi
    else
        say "To install it:  sudo $install"
        if [ -n "$for_build" ]; then
            say "The build does not work without the first of these."
            exit 1
        fi
        say "Going on without; what needs it says so."
    fi
fi

if ! command -v cargo >/dev/null 2>&1; then
    say "There is no Rust here. https://rustup.rs says how to install it, as an ordinary user too."
    exit 1
fi
version=$(rustc --version | cut -d' ' -f2)
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if [ "$(printf '%s\n%s\n' "$wanted" "$version" | sort -V | head -n1)" != "$wanted" ]; then
    say "Rust $version is too old: Seekless needs $wanted. With rustup:  rustup update stable"
    exit 1
fi
# A minimal toolchain comes without them.
for part in fmt:rustfmt clippy:clippy; do
    if ! cargo "${part%:*}" --version >/dev/null 2>&1; then
        if command -v rustup >/dev/null 2>&1; then
            rustup component add "${part#*:}" >&2
        else
            say "missing: cargo ${part%:*}; \`make lint\` and \`make test\` need it"
        fi
    fi
done

if [ ! -e /dev/fuse ]; then
    say "There is no /dev/fuse: mounting does not work here, and the tests of it are skipped. (modprobe fuse; in a"
    say "container: --device /dev/fuse --cap-add SYS_ADMIN)"
fi
