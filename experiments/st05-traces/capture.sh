#!/bin/bash
# Records the two block traces of [st05], as nearly as today's kernels do: experiments/st05-traces/capture.sh [postmark] [build]
#
# Each workload runs on a fresh ext3 of 8 GiB in a sparse image behind a loop device, its journal inside, and in no more memory
# than the machine of [st05] had. Recording begins before the mount, so that caches are cold, and ends after the unmount,
# so that everything has been written. Timing is that of this machine and is not used: replays ask as fast as the storage
# answers.
#
# Needs root, loop devices, the kernel's tracing file system, mkfs.ext3, and for
#   postmark  Debian's package postmark
#   build     Debian's package linux-source-6.1 (or LINUX_TARBALL), gcc, make, flex, bison, bc, kmod, xz-utils
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
data=''
group=/sys/fs/cgroup/memory/$(basename "$work") limit=memory.limit_in_bytes
[ -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/$(basename "$work") limit=memory.max
clean_up() {
    trap - EXIT INT TERM
    mountpoint -q "$mnt" && umount "$mnt"
    [ -n "$data" ] && losetup -d "$data"
    [ ! -d "$group" ] || rmdir "$group"
    mountpoint -q "$mnt" || rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# The machine of [st05] had 768 MB, for everything. Here it is for the programs and what is cached for them.
mkdir "$group"
echo 768M >"$group/$limit" || die "this kernel cannot limit the memory of a group of processes"

# A file system as fresh as the next one. What the kernel would keep of the image itself does not count as memory.
new_file_system() {
    truncate -s 8GiB "$work/data.img"
    data=$(losetup --find --show --direct-io=on "$work/data.img")
    # Tables are made now, not by a thread of the kernel during the recording.
    mkfs.ext3 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$data"
}

end_file_system() {
    losetup -d "$data"; data=''
    rm -f "$work/data.img"
}

# record NAME TICKS COMMAND..: records the command, run in the mounted file system, into NAME.trace.zst. Everything dirty
# is written whenever the command has used so many hundredths of a second of the processor, besides what the kernel does
# by itself; 0 leaves it to the kernel. Access times are written and the journal does not wait for the drive's cache, as
# in 2005.
record() {
    local name=$1 ticks=$2
    shift 2
    cat >"$work/session.sh" <<-'END'
	set -eu
	device=$1 mnt=$2 ticks=$3 group=$4
	shift 4
	echo $$ >"$group/cgroup.procs"
	mount -t ext3 -o strictatime,barrier=0 "$device" "$mnt"
	cd "$mnt"
	"$@" &
	command=$! synced=0
	while [ "$ticks" != 0 ] && stat=$(cat "/proc/$command/stat" 2>/dev/null); do
	    set -- ${stat##*) }
	    [ "$1" != Z ] || break
	    used=$((${12} + ${13}))
	    if [ $((used - synced)) -ge "$ticks" ]; then
	        sync -f "$mnt"
	        synced=$used
	    fi
	    sleep 0.005
	done
	wait "$command"
	cd /
	umount "$mnt"
	END
    "$program" trace capture "$data" -o "$work/$name.raw.zst" --buffer 65536 -- \
        bash "$work/session.sh" "$data" "$mnt" "$ticks" "$group" "$@"
    # What the requests were, without what replays do not use.
    "$program" trace convert --force --to seekless -o "$here/$name.trace.zst" "$work/$name.raw.zst"
    "$program" trace info "$here/$name.trace.zst"
}

# The parameters that [st05] names. It does not say how many files there were: PostMark's 500. What took a machine of 2005
# a minute or more takes one of today a second, in which nothing would ever leave its memory; so the kernel's habit of
# writing every 5 s what is dirty is quickened a hundred times, and goes by the processor's time, as another program may
# hold this one up.
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
    record postmark 5 postmark "$work/postmark.conf"
    end_file_system
}

# A kernel and its modules: the smallest configuration, and beside it file systems, SCSI disks and all national character sets as
# modules; with debugging information, so that objects are as large as those of a kernel with everything. Unpacking and
# configuring come before the recording, as in [st05], whose build begins with a mount.
build_workload() {
    [ -r "$tarball" ] || die "there is no $tarball:  apt-get install linux-source-6.1, or name one with LINUX_TARBALL"
    new_file_system
    mount -t ext3 "$data" "$mnt"
    mkdir "$mnt/linux"
    tar -C "$mnt/linux" --strip-components=1 -xf "$tarball"
    cd "$mnt/linux"
    make -s ARCH=i386 tinyconfig >/dev/null
    scripts/config -d DEBUG_INFO_NONE -e DEBUG_INFO_DWARF4 -e MODULES -e BLOCK -e MISC_FILESYSTEMS -e PCI -m SCSI \
        -m BLK_DEV_SD -m BLK_DEV_LOOP -m EXT2_FS -m EXT4_FS -m ISO9660_FS -m MSDOS_FS -m VFAT_FS -m MINIX_FS -m ROMFS_FS
    local set
    for set in $(sed -n 's/^config \(NLS_[A-Z0-9_]*\)$/\1/p' fs/nls/Kconfig | grep -v NLS_DEFAULT); do
        scripts/config -m "$set"
    done
    make -s ARCH=i386 olddefconfig
    cd /
    umount "$mnt"
    record build 0 make -s -C linux ARCH=i386 "-j$jobs" vmlinux modules
    end_file_system
}

[ $# -gt 0 ] || set -- postmark build
for workload; do
    case $workload in
        postmark | build) "${workload}_workload" ;;
        *) die "there are the workloads postmark and build" ;;
    esac
done
