#!/bin/sh
# Compares the compressing layers with other ways to have compressed or encrypted files: gocryptfs, bindfs, btrfs with
# compress=zstd on a loop device, and squashfs below an overlay. All in turn, round after round, so that whatever else the
# machine does falls on all of them.
#
#   sudo scripts/peers.sh TREE [ROUNDS]      TREE is a directory, for example of sources; ROUNDS is 3 unless said otherwise
#
# For each: MB/s of copying TREE in, until it is durable, and of reading it back cold; thousands of files a second that a
# cold `find -printf %s` sees; microseconds of a cold read of 4 KiB at a random place of a file of 64 MB, and of a durable
# write there; and the space that the tree takes, in percent. Medians. What is not installed is left out:
#   apt-get install gocryptfs bindfs btrfs-progs squashfs-tools
# Each has a new ext4 below it, on a loop device over a file that has been written before, or btrfs where its name says so: a
# used ext4 is slow at making files for a while after others were removed. PEERS names those that are wanted, in place of all.
#
# Everything is done in a scratch directory below DIR, or /var/tmp. SEEKLESS names the program.

set -eu

cannot() {
    echo "peers.sh: $1" >&2
    exit 2
}

[ $# -ge 1 ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2; }
tree=$(realpath "$1")
rounds=${2:-3}
[ "$(id -u)" = 0 ] || cannot "only root can drop caches and mount loop devices"
seekless=${SEEKLESS:-$(dirname "$0")/../target/release/seekless}
[ -x "$seekless" ] || cannot "there is no program $seekless (SEEKLESS=PROGRAM names another)"
scratch=$(mktemp -d -p "${DIR:-/var/tmp}")
mounted=

clean_up() {
    code=$?
    trap - EXIT INT TERM
    [ -z "$mounted" ] || unmount_peer "$mounted" || code=2
    ! mountpoint -q "$scratch/lower" || umount "$scratch/lower" || code=2
    rm -rf --one-file-system "$scratch"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 2' INT TERM

has() {
    command -v "$1" >/dev/null
}

peers="directory wrap zstd1 zstd3 lz4"
has gocryptfs && peers="$peers gocryptfs"
has bindfs && peers="$peers bindfs"
has mkfs.btrfs && { grep -q btrfs /proc/filesystems || modprobe btrfs 2>/dev/null; } && peers="$peers btrfs zstd1-btrfs"
has mksquashfs && { grep -q squashfs /proc/filesystems || modprobe squashfs 2>/dev/null; } && peers="$peers squashfs"

peers=${PEERS:-$peers}

layer() {
    case $1 in
        wrap) echo wrap ;;
        zstd1 | zstd1-btrfs) echo zstd:level=1 ;;
        zstd3) echo zstd ;;
        lz4) echo lz4 ;;
    esac
}

# Makes the place of a peer for a round.
make_peer() {
    case $1 in
        *btrfs) mkfs.btrfs -q -f -K "$scratch/image" >/dev/null ;;
        *) mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$scratch/image" ;;
    esac
    case $1 in
        btrfs) mount -o loop,compress=zstd:1 "$scratch/image" "$scratch/lower" ;;
        *) mount -o loop "$scratch/image" "$scratch/lower" && rm -rf "$scratch/lower/lost+found" ;;
    esac
    empty=$(used)
    case $1 in
        gocryptfs) echo word >"$scratch/word" && gocryptfs -q -init -scryptn 10 -passfile "$scratch/word" "$scratch/lower" ;;
        squashfs) mkdir "$scratch/lower/upper" "$scratch/lower/work" "$scratch/lower/image.d" ;;
    esac
}

# Some daemons end a moment after their mount.
remove_peer() {
    tries=0
    until umount "$scratch/lower" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || cannot "$scratch/lower is still in use by $1"
        sleep 0.1
    done
}

# Bytes in use on the file system below.
used() {
    sync -f "$scratch/lower"
    df --output=used -B1 "$scratch/lower" | tail -1
}

mount_peer() {
    case $1 in
        directory | btrfs) mount --bind "$scratch/lower" "$scratch/mnt" ;;
        wrap | zstd* | lz4) "$seekless" mount "$(layer "$1") / hostdir:$scratch/lower" "$scratch/mnt" ;;
        gocryptfs) gocryptfs -q -nosyslog -passfile "$scratch/word" "$scratch/lower" "$scratch/mnt" ;;
        bindfs) bindfs "$scratch/lower" "$scratch/mnt" ;;
        squashfs)
            mount -o loop "$scratch/lower/image" "$scratch/lower/image.d"
            mount -t overlay overlay "$scratch/mnt" \
                -o "lowerdir=$scratch/lower/image.d,upperdir=$scratch/lower/upper,workdir=$scratch/lower/work"
            ;;
    esac
    mounted=$1
}

unmount_peer() {
    mounted=
    case $1 in
        wrap | zstd* | lz4) "$seekless" umount "$scratch/mnt" ;;
        gocryptfs | bindfs) fusermount -u "$scratch/mnt" 2>/dev/null || fusermount3 -u "$scratch/mnt" ;;
        squashfs) umount "$scratch/mnt" && umount "$scratch/lower/image.d" ;;
        *) umount "$scratch/mnt" ;;
    esac
}

# Makes the next reads come from the device.
cold() {
    unmount_peer "$1"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    mount_peer "$1"
}

now() {
    date +%s%N
}

# note PEER WHAT VALUE
note() {
    echo "$3" >>"$scratch/$1.$2"
}

bytes=$(du -sb "$tree" | cut -f1)
files=$(find "$tree" -type f | wc -l)
tree_blocks=$(du -sB1 "$tree" | cut -f1)

round() {
    peer=$1
    make_peer "$peer"
    if [ "$peer" = squashfs ]; then
        # It is made as a whole, beside the overlay that can be written.
        mkdir "$scratch/source" && cp -a "$tree" "$scratch/source/tree"
        dd if=/dev/urandom of="$scratch/source/large" bs=1M count=64 status=none
        started=$(now)
        mksquashfs "$scratch/source" "$scratch/lower/image" -comp zstd -quiet -no-progress >/dev/null && sync
        note "$peer" write $((bytes * 1000 / ($(now) - started)))
        rm -rf "$scratch/source"
        mount_peer "$peer"
    else
        mount_peer "$peer"
        started=$(now)
        cp -a "$tree" "$scratch/mnt/tree"
        sync -f "$scratch/mnt/tree"
        case $peer in wrap | zstd* | lz4) "$seekless" sync "$scratch/mnt" ;; esac
        note "$peer" write $((bytes * 1000 / ($(now) - started)))
        note "$peer" space $((($(used) - empty) * 1000 / tree_blocks))
        dd if=/dev/urandom of="$scratch/mnt/large" bs=1M count=64 status=none
    fi
    [ "$peer" != squashfs ] || note "$peer" space $((($(stat -c %s "$scratch/lower/image") - (64 << 20)) * 1000 / tree_blocks))

    cold "$peer"
    started=$(now)
    find "$scratch/mnt/tree" -type f -printf '%s\n' >/dev/null
    note "$peer" stat $((files * 1000000 / ($(now) - started)))

    cold "$peer"
    started=$(now)
    find "$scratch/mnt/tree" -type f -exec cat {} + >/dev/null
    note "$peer" read $((bytes * 1000 / ($(now) - started)))

    cold "$peer"
    note "$peer" random-read "$(at_random 200)"
    note "$peer" random-write "$(at_random 50 write)"
    unmount_peer "$peer"
    remove_peer "$peer"
}

# at_random COUNT [write]: microseconds of reading, or writing durably, 4 KiB at each of COUNT places of the large file.
at_random() {
    perl -MTime::HiRes=time -MIO::Handle -e '
        my ($path, $count, $writes) = @ARGV;
        open(my $file, $writes ? "+<" : "<", $path) or die "$path: $!";
        my ($place, $bytes, $start) = (1, "", time);
        for (1 .. $count) {
            $place = $place * 1103515245 % 2147483648 + 12345; # ANSI C, to have the same places for all
            sysseek($file, int($place / 131072) % 16384 * 4096, 0);
            if ($writes) { syswrite($file, chr($place % 251) x 4096) == 4096 && $file->sync or die "$path: $!" }
            else { sysread($file, $bytes, 4096) == 4096 or die "$path: $!" }
        }
        printf "%d\n", (time - $start) / $count * 1e6' "$scratch/mnt/large" "$1" "${2:-}"
}

# Written once, so that nobody pays for blocks of the file below that are new.
mkdir -p "$scratch/lower" "$scratch/mnt"
dd if=/dev/zero of="$scratch/image" bs=1M count=4096 status=none

number=0
while [ $number -lt "$rounds" ]; do
    number=$((number + 1))
    for peer in $peers; do
        echo "round $number of $rounds: $peer" >&2
        round "$peer"
    done
done

median() {
    sort -n "$1" | awk '{ all[NR] = $1 } END { if (NR) print all[int((NR + 1) / 2)] }'
}

echo "$tree: $files files, $((bytes >> 20)) MiB, $rounds rounds"
printf '%-12s %10s %10s %10s %12s %13s %8s\n' "" "write MB/s" "read MB/s" "kstat/s" "rnd read us" "rnd write us" "space %"
for peer in $peers; do
    printf '%-12s %10s %10s %10s %12s %13s %8s\n' "$peer" \
        "$(median "$scratch/$peer.write")" "$(median "$scratch/$peer.read")" \
        "$(median "$scratch/$peer.stat")" "$(median "$scratch/$peer.random-read")" \
        "$(median "$scratch/$peer.random-write")" "$(median "$scratch/$peer.space" | awk '{ print $1 / 10 }')"
done
