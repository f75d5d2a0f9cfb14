#!/bin/bash
# Records the two block traces of [st05], as nearly as today's kernels do: experiments/st05-traces/capture.sh [postmark] [build]
#
# Each workload runs on a fresh ext3 of 8 GiB in a sparse image behind a loop device, with its journal on another one, as
# [st05] had its log on another disk. Recording begins before the mount, so that caches are cold, and ends after the
# unmount, so that everything has been written. Timing is that of this machine and is not used: replays ask as fast as
# the storage answers.
#
# Needs root, loop devices, the kernel's tracing file system, mkfs.ext3, and for
#   postmark  Debian's package postmark
#   build     Debian's package linux-source-6.1 (or LINUX_TARBALL), gcc, make, flex, bison, bc, xz-utils
# SEEKLESS names the program; SCRATCH a directory with 5 GB of room; JOBS the compilers at once (2).
set -eu -o pipefail
cd "$(dirname "$0")"
export LC_ALL=C

program=${SEEKLESS:-$PWD/../../target/release/seekless}
tarball=${LINUX_TARBALL:-/usr/src/linux-source-6.1.tar.xz}
jobs=${JOBS:-2}
here=$PWD

die() { echo "capture: $1" >&2; exit 1; }
[ -x "$program" ] || die "there is no $program; build it first: cargo build --release"
[ "$(id -u)" = 0 ] || die "mounting and recording need root"
[ -e /dev/loop-control ] || die "this machine has no loop devices; the traces that are here were recorded elsewhere"
[ -d /sys/kernel/tracing/instances ] || die "no tracing file system; as root: mount -t tracefs none /sys/kernel/tracing"
command -v mkfs.ext3 >/dev/null || die "there is no mkfs.ext3:  apt-get install e2fsprogs"

work=$(mktemp -d "${SCRATCH:-${TMPDIR:-/tmp}}/seekless-st05.XXXXXX")
mnt=$work/mnt
mkdir "$mnt"
data='' log=''
clean_up() {
    trap - EXIT INT TERM
    mountpoint -q "$mnt" && umount "$mnt"
    [ -n "$data" ] && losetup -d "$data"
    [ -n "$log" ] && losetup -d "$log"
    mountpoint -q "$mnt" || rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# A file system as fresh as the next one.
new_file_system() {
    truncate -s 8GiB "$work/data.img"
    truncate -s 128MiB "$work/log.img"
    data=$(losetup --find --show "$work/data.img")
    log=$(losetup --find --show "$work/log.img")
    mke2fs -q -b 4096 -O journal_dev "$log"
    # Tables are made now, not by a thread of the kernel during the recording.
    mkfs.ext3 -q -b 4096 -E lazy_itable_init=0,nodiscard -J "device=$log" "$data"
}

end_file_system() {
    losetup -d "$data"; data=''
    losetup -d "$log"; log=''
    rm -f "$work/data.img" "$work/log.img"
}

# record NAME SECONDS COMMAND..: records the command, run in the mounted file system, into NAME.trace.zst. Everything
# dirty is written every so many seconds, besides what the kernel does by itself; 0 leaves it to the kernel. Access
# times are written, as in 2005.
record() {
    local name=$1 seconds=$2
    shift 2
    cat >"$work/session.sh" <<-'END'
	set -eu
	device=$1 mnt=$2 seconds=$3
	shift 3
	mount -t ext3 -o strictatime "$device" "$mnt"
	cd "$mnt"
	"$@" &
	command=$!
	while [ "$seconds" != 0 ] && kill -0 "$command" 2>/dev/null; do
	    sync -f "$mnt"
	    sleep "$seconds"
	done
	wait "$command"
	cd /
	umount "$mnt"
	END
    "$program" trace capture "$data" -o "$work/$name.raw.zst" --buffer 65536 -- \
        bash "$work/session.sh" "$data" "$mnt" "$seconds" "$@"
    # What the requests were, without what replays do not use.
    "$program" trace convert --to seekless -o "$here/$name.trace.zst" "$work/$name.raw.zst"
    "$program" trace info "$here/$name.trace.zst"
}

# The parameters that [st05] names. It does not say how many files there were: PostMark's 500. What took a machine of 2005
# a minute or more takes one of today a second, in which nothing would ever leave its memory; so the kernel's habit of
# writing every 5 s what is dirty is quickened as much.
postmark_workload() {
    command -v postmark >/dev/null || die "there is no postmark:  apt-get install postmark"
    cat >"$work/postmark.conf" <<-END
	set size 512 16384
	set read 512
	set write 512
	set transactions 2000
	set subdirectories 20000
	set location $mnt
	run
	quit
	END
    new_file_system
    record postmark 0.05 postmark "$work/postmark.conf"
    end_file_system
}

# A kernel: the smallest that there is, with debugging information, so that its objects are as large as a kernel's.
# Unpacking and configuring come before the recording, as in [st05], whose build begins with a mount.
build_workload() {
    [ -r "$tarball" ] || die "there is no $tarball:  apt-get install linux-source-6.1, or name one with LINUX_TARBALL"
    new_file_system
    mount -t ext3 "$data" "$mnt"
    mkdir "$mnt/linux"
    tar -C "$mnt/linux" --strip-components=1 -xf "$tarball"
    make -s -C "$mnt/linux" ARCH=x86 tinyconfig >/dev/null
    "$mnt/linux/scripts/config" --file "$mnt/linux/.config" -d DEBUG_INFO_NONE -e DEBUG_INFO_DWARF4
    make -s -C "$mnt/linux" ARCH=x86 olddefconfig
    umount "$mnt"
    record build 0 make -s -C linux ARCH=x86 "-j$jobs" vmlinux
    end_file_system
}

[ $# -gt 0 ] || set -- postmark build
for workload; do
    case $workload in
        postmark | build) "${workload}_workload" ;;
        *) die "there are the workloads postmark and build" ;;
    esac
done
