#!/bin/sh
# Repeats [za01 Fig. 5] in real time: configure and make of a C package through the layers, mounted over directories of an
# ext4 on a loop device, all in turn, round after round, with nothing in the caches of the kernel.
#
#   sudo scripts/za01.sh [ROUNDS]             ROUNDS is 3 unless said otherwise
#
# Prints medians of the elapsed time, of the time that the build spent in the kernel, of the processor time of the layer's
# daemon, and of the space of the tree; and elapsed time and space in terms of those of `wrap`.
#
# PACKAGE chooses what is built: hello (the default), gawk or bash, each of one version from Debian's sources, with a
# checksum. It is looked for in SOURCES, or the present directory, and else fetched from MIRROR,
# http://deb.debian.org/debian. PEERS chooses the mounts: plain, wrap (which the others are compared with), copy, uuencode and
# gzip as published, and copy-log, gzip-log, zstd-log and lz4-log in our own scheme.
#
# Everything is done in a scratch directory below DIR, or /var/tmp. SEEKLESS names the program.

set -eu

cannot() {
    echo "za01.sh: $1" >&2
    exit 2
}

rounds=${1:-3}
case $rounds in
    '' | *[!0-9]*) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
here=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || cannot "only root can drop caches and mount loop devices"
seekless=$(realpath "${SEEKLESS:-${CARGO_TARGET_DIR:-$here/target}/release/seekless}")
[ -x "$seekless" ] || cannot "there is no program $seekless (SEEKLESS=PROGRAM names another)"
scratch=$(mktemp -d -p "${DIR:-/var/tmp}")

clean_up() {
    code=$?
    trap - EXIT INT TERM
    cd /
    for mount in "$scratch"/mnt/*; do
        [ ! -f "$mount.pid" ] || "$seekless" umount "$mount" || code=2
    done
    ! mountpoint -q "$scratch/ext4" || umount "$scratch/ext4" || code=2
    rm -rf --one-file-system "$scratch"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 2' INT TERM

# Written once, so that no contestant pays for blocks of the file below that are new.
dd if=/dev/zero of="$scratch/image" bs=1M count=4096 status=none
mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$scratch/image"
mkdir "$scratch/ext4" "$scratch/mnt"
mount -o loop "$scratch/image" "$scratch/ext4"

# mount_layers NAME WORDS, as `copy` `copy:index=classic /`; without words it is the directory itself.
mount_layers() {
    mkdir "$scratch/ext4/$1"
    case $2 in
        '') ln -s "$scratch/ext4/$1" "$scratch/mnt/$1" ;;
        *)
            mkdir "$scratch/mnt/$1"
            "$seekless" mount "$2 hostdir:$scratch/ext4/$1" "$scratch/mnt/$1" --pid-file "$scratch/mnt/$1.pid"
            ;;
    esac
}

now() {
    date +%s%N
}

median() {
    sort -n "$1" | awk '{ all[NR] = $1 } END { if (NR) print all[int((NR + 1) / 2)] }'
}

fetch() {
    case ${PACKAGE:-hello} in
        hello) path=h/hello/hello_2.10.orig.tar.gz sum=31e066137a962676e89f69d1b65382de95a7ef7d914b8cb956f41ea72e0f516b ;;
        gawk) path=g/gawk/gawk_5.2.1.orig.tar.xz sum=2337a0283b180ec1b9c727973a34781c6478b3ae9bcbdcca0a4dc49861d75a65 ;;
        bash) path=b/bash/bash_5.2.15.orig.tar.gz sum=7a315bc0e9d90713159e4390ec1096a41e4f33cd8cc3d1a749a8e5ad56600f51 ;;
        *) cannot "PACKAGE is hello, gawk or bash" ;;
    esac
    archive=${SOURCES:-.}/${path##*/}
    if [ ! -f "$archive" ]; then
        mirror=${MIRROR:-http://deb.debian.org/debian}
        archive=$scratch/${path##*/}
        curl -fsS -o "$archive" "$mirror/pool/main/$path" \
            || cannot "${path##*/} is not in ${SOURCES:-this directory} and cannot be fetched from $mirror"
    fi
    echo "$sum  $archive" | sha256sum -c --status || cannot "$archive is not the file that it should be (SHA-256 $sum)"
}

# Processor time in kernel and user mode of a process, in milliseconds.
processor_of() {
    awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) * 1000 / hz }' "/proc/$1/stat"
}

words() {
    case $1 in
        plain) ;;
        wrap) echo "wrap /" ;;
        copy | uuencode) echo "$1:index=classic /" ;;
        gzip) echo "gzip:level=9,index=classic /" ;;
        gzip-log) echo "gzip:level=9 /" ;;
        *-log) echo "${1%-log} /" ;;
        *) cannot "there is no peer \`$1\`" ;;
    esac
}

build() {
    fetch
    peers=${PEERS:-plain wrap copy uuencode gzip gzip-log zstd-log}
    for peer in $peers; do
        mount_layers "$peer" "$(words "$peer")"
    done
    number=0
    while [ $number -lt "$rounds" ]; do
        number=$((number + 1))
        for peer in $peers; do
            echo "round $number of $rounds: $peer" >&2
            root=$scratch/mnt/$peer
            tar -xf "$archive" -C "$root"
            sync -f "$root/."
            echo 3 >/proc/sys/vm/drop_caches
            daemon=0
            [ ! -f "$root.pid" ] || daemon=$(processor_of "$(cat "$root.pid")")
            started=$(now)
            (
                cd "$root"/*/
                export FORCE_UNSAFE_CONFIGURE=1 MAKEFLAGS=
                { ./configure -q && make -s; } >"$scratch/log" 2>&1 || { tail -5 "$scratch/log" >&2; exit 1; }
                times >"$scratch/times"
            )
            sync -f "$root/."
            echo $((($(now) - started) / 1000000)) >>"$scratch/$peer.elapsed"
            # The second line of `times` is about children: user and system time.
            sed -n 2p "$scratch/times" | tr 'ms' '  ' | awk '{ print ($3 * 60 + $4) * 1000 }' >>"$scratch/$peer.system"
            [ ! -f "$root.pid" ] || daemon=$(($(processor_of "$(cat "$root.pid")") - daemon))
            echo "$daemon" >>"$scratch/$peer.daemon"
            du -sB1 "$scratch/ext4/$peer" | cut -f1 >>"$scratch/$peer.space"
            rm -rf "$root"/*/
        done
    done
    echo "${path##*/}, $(tar -tf "$archive" | grep -vc '/$') files, $rounds rounds"
    printf '%-10s %12s %9s %12s %12s %9s %9s\n' "" "elapsed ms" "of wrap" "system ms" "daemon ms" "MiB" "of wrap"
    for peer in $peers; do
        elapsed=$(median "$scratch/$peer.elapsed") space=$(median "$scratch/$peer.space")
        base_elapsed=$(median "$scratch/wrap.elapsed") base_space=$(median "$scratch/wrap.space")
        echo "$peer $elapsed $base_elapsed $(median "$scratch/$peer.system") $(median "$scratch/$peer.daemon") $space $base_space" \
            | awk '{ printf "%-10s %12d %9.3f %12d %12d %9.1f %9.3f\n", $1, $2, $2 / $3, $4, $5, $6 / 1048576, $6 / $7 }'
    done
}

build
