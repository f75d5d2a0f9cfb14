#!/bin/bash
# The demonstration: real files into a log-structured file system, its daemon killed in the middle, everything that was
# synced still there; then the same file-system code on a modelled disk of 1994, next to what was published, and a quick
# version of the comparisons of 1991 and 1995 between LFS and FFS.
#
# Takes no arguments. Runs as any user, leaves one page behind (results/demo.html), calls no sudo; what cannot be done
# here is left out and said. SEEKLESS names another program to demonstrate.
set -u -o pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

project=$PWD
program=${SEEKLESS:-$PWD/target/release/seekless}
[ -x "$program" ] || { echo "demo: there is no $program; build it first: cargo build --release" >&2; exit 1; }

# A run of the benchmark at the size of the papers, and real trees of at least this many files.
files_wanted=5000
image_bytes=2GiB

# Experiments of which a quick version is shown.
papers=(ro92-fig8 ro92-fig9 se95-sizes se95-tpcb se95-aged)

work=$(mktemp -d "${TMPDIR:-/tmp}/seekless-demo.XXXXXX") || exit 1
cd "$work" || exit 1
# Short names, because they are shown.
mnt=./mnt
image=demo.img
pid_file=daemon.pid
summary=()
failed=

mounted() { grep -q " $work/mnt fuse" /proc/self/mounts; }

clean_up() {
    trap - EXIT INT TERM
    if mounted; then
        "$program" umount "$mnt" 2>/dev/null || "$program" umount --lazy "$mnt" 2>/dev/null
        # Only our own daemon, and only if unmounting did not end it.
        [ -s "$pid_file" ] && kill "$(cat "$pid_file")" 2>/dev/null
    fi
    cd /
    mounted || rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

steps=0
step() {
    steps=$((steps + 1))
    printf '\n== %s  %s\n' "$steps" "$*"
}
run() {
    local argument
    printf '   $ seekless'
    for argument; do
        case $argument in *' '*) printf " '%s'" "$argument" ;; *) printf ' %s' "$argument" ;; esac
    done
    printf '\n'
    "$program" "$@"
}
note() { summary+=("$1"); printf '   %s\n' "$1"; }
die() { printf 'demo: %s\n' "$1" >&2; [ -s log ] && tail -5 log >&2; exit 1; }
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
count_files() { find "$@" -type f 2>/dev/null | wc -l; }

# ---- What there is to work with

# Directories whose content people wrote: sources of the Rust toolchain, of the crates on this machine, of the system.
candidates() {
    local sysroot
    sysroot=$(rustc --print sysroot 2>/dev/null) && find "$sysroot/lib/rustlib/src/rust/library" -mindepth 1 -maxdepth 1 -type d 2>/dev/null
    find "${CARGO_HOME:-$HOME/.cargo}"/registry/src -mindepth 2 -maxdepth 2 -type d 2>/dev/null
    find /usr/share/doc /usr/include /usr/share -mindepth 1 -maxdepth 1 -type d -readable 2>/dev/null
}

# Two lists of whole directories, each with at least so many files.
choose_trees() {
    local count=0 list=$work/tree1 directory more bytes
    : >"$work/tree1"; : >"$work/tree2"
    while read -r directory; do
        more=$(count_files "$directory")
        bytes=$(du -sm "$directory" 2>/dev/null | cut -f1)
        # A giant would take the time and the space of the others.
        [ "${bytes:-0}" -le 60 ] && [ "$more" -gt 0 ] || continue
        # Unreadable files would look like lost ones.
        [ -z "$(find "$directory" -type f ! -readable -print -quit 2>/dev/null)" ] || continue
        echo "$directory" >>"$list"
        count=$((count + more))
        if [ "$count" -ge "$files_wanted" ]; then
            [ "$list" = "$work/tree2" ] && return 0
            list=$work/tree2 count=0
        fi
    done < <(candidates | sort -u)
    # Not enough for two different trees: the second one is the first once more.
    [ "$(wc -l <"$work/tree2")" -gt 0 ] && [ "$list" = "$work/tree2" ] || return 1
    cp "$work/tree1" "$work/tree2"
}

why_not_mount() {
    [ -e /dev/fuse ] || { echo "there is no /dev/fuse here"; return; }
    [ "$(id -u)" = 0 ] && return
    command -v fusermount3 >/dev/null || { echo "only root can mount here; install the package fuse3: apt-get install fuse3"; return; }
    [ -w /dev/fuse ] || echo "this user may not open /dev/fuse for writing; on most systems all users may: chmod 666 /dev/fuse"
}

# ---- The parts

mount_image() {
    run mount "lfs / file:$image" "$mnt" --log-file log --pid-file "$pid_file" || die "the image cannot be mounted"
}

# Copies the directories of a list into a directory of the mount, with a sync after every few. Names of what is synced
# go to "$3".
copy_tree() {
    local list=$1 target=$2 synced=$3 directory number=0 pending=()
    mkdir -p "$target"
    while read -r directory; do
        number=$((number + 1))
        # Two directories of one name are two.
        cp -a --no-preserve=ownership,xattr "$directory" "$target/$number" 2>/dev/null || return 1
        pending+=("$number $directory")
        if [ ${#pending[@]} -ge 8 ]; then
            "$program" sync "$mnt" || return 1
            printf '%s\n' "${pending[@]}" >>"$synced"
            pending=()
        fi
    done <"$list"
    "$program" sync "$mnt" || return 1
    [ ${#pending[@]} -eq 0 ] || printf '%s\n' "${pending[@]}" >>"$synced"
}

# Compares every directory in a list of synced ones with where it came from. Leaves the number of files in $compared.
compare_tree() {
    local target=$1 synced=$2 number directory
    compared=0
    while read -r number directory; do
        diff -r --no-dereference -q "$directory" "$target/$number" >>"$work/differences" 2>&1
        compared=$((compared + $(count_files "$target/$number")))
    done <"$synced"
}

real_files() {
    local began copier after
    step "An image file, a file system on it, and a mount"
    run mkfs --quiet "lfs / file:$image,size=$image_bytes" --label demo || die "no file system was made"
    mount_image
    df -h "$mnt" | sed 's/^/   /'

    step "Real source trees into it"
    : >"$work/synced1"; : >"$work/synced2"
    began=$EPOCHREALTIME
    copy_tree "$work/tree1" "$mnt/one" "$work/synced1" || die "copying failed"
    note "copied $(count_files "$mnt/one") files, $(du -sh "$mnt/one" | cut -f1), in $(seconds_since "$began") s, and synced"

    step "SIGKILL in the middle of a second tree"
    copy_tree "$work/tree2" "$mnt/two" "$work/synced2" 2>/dev/null &
    copier=$!
    # In mid-copy: some of it is synced, and it has not ended.
    for _ in $(seq 600); do
        after=$(wc -l <"$work/synced2")
        [ "$after" -ge 16 ] && break
        kill -0 "$copier" 2>/dev/null || break
        sleep 0.05
    done
    sleep 0.2
    kill -KILL "$(cat "$pid_file")" || die "there is no daemon to kill"
    wait "$copier"
    [ "$?" -ne 0 ] || note "(the second copy had already ended when the daemon was killed)"
    # A dead mount has no daemon to wait for.
    run umount --lazy "$mnt" || die "the dead mount cannot be taken away"
    note "killed the daemon after $(wc -l <"$work/synced2") of $(wc -l <"$work/tree2") directories of the second tree were synced"

    step "Mount again: the log is rolled forward"
    began=$EPOCHREALTIME
    mount_image
    after=$(seconds_since "$began")
    note "recovered in $after s, $(awk '/replayed_transactions/ { n = $NF } END { print n + 0 }' log) transactions rolled forward"
    : >"$work/differences"
    compare_tree "$mnt/one" "$work/synced1"; after=$compared
    compare_tree "$mnt/two" "$work/synced2"; after=$((after + compared))
    if [ -s "$work/differences" ]; then
        head -20 "$work/differences"
        failed=yes
        note "FAILED: synced files are missing or differ ($(wc -l <"$work/differences") lines above)"
    else
        note "all $after synced files are there, bit for bit"
        note "of the unsynced rest of the second tree, $(($(count_files "$mnt/two") - compared)) files had reached the log"
    fi

    step "Unmount, and check every block"
    run umount "$mnt" || die "unmounting failed"
    if run fsck --data "lfs / file:$image"; then
        note "fsck found no damage"
    else
        failed=yes
        note "FAILED: fsck found damage"
    fi
}

benchmark() {
    local contestants=(--on "lfs / disk:dec-rz26")
    step "10,000 files of 1 KB: the same code on a modelled disk in virtual time, and here in real time"
    if mounted_again; then
        contestants+=(--on "$mnt")
    else
        [ -e "$image" ] || run mkfs --quiet "lfs / file:$image,size=$image_bytes" || die "no file system was made"
        contestants+=(--on "lfs / file:$image")
    fi
    mkdir -p host
    contestants+=(--on ./host)
    run bench smallfile --profile sparcstation2 "${contestants[@]}" >"$work/bench" || die "the benchmark failed"
    # The command is shown now, its result in the summary.
    sed 1d "$work/bench" >"$work/table"
    sed 1q "$work/bench"
}

# Not to conclude from, but to see that all of it works.
experiments() {
    local name
    step "LFS against FFS as in 1991 and 1995, in quick versions: the whole set is seekless run experiments/NAME"
    for name in "${papers[@]}"; do
        run run "$project/experiments/$name" --quick --out "results/$name" >"$work/rows" || die "$name failed"
        sed 1q "$work/rows"
    done
    mkdir -p "$project/results" && page=$project/results/demo.html
    [ -w "$project/results" ] || { note "left out, a page of them: this user may not write to $project/results"; return; }
    run report "${papers[@]/#/results/}" --title "LFS against FFS, quick versions" -o "$page" || die "there is no page"
    note "figures of ${#papers[@]} quick experiments: $page"
}

mounted_again() {
    [ -z "$cannot_mount" ] && mount_image >/dev/null
}

# ---- All of it

began_all=$EPOCHREALTIME
printf 'seekless demonstration: %s\n' "$("$program" --version)"
mkdir "$mnt" || exit 1
cannot_mount=$(why_not_mount)
free_mib=$(df -Pm "$work" | awk 'NR == 2 { print $4 }')
if [ -n "$cannot_mount" ]; then
    note "left out, files on a mount: $cannot_mount"
elif [ "$free_mib" -lt 1500 ]; then
    note "left out, files on a mount: $work has only $free_mib MiB free; set TMPDIR to a place with more"
elif ! choose_trees; then
    note "left out, files on a mount: there is no tree of $files_wanted files on this machine"
else
    real_files
fi
benchmark
experiments
mounted && { "$program" umount "$mnt" || failed=yes; }

printf '\n== Summary\n'
for line in "${summary[@]}"; do printf '   %s\n' "$line"; done
printf '\n'
sed 's/^./   &/' table
printf '\n'
printf '   everything took %s s\n' "$(seconds_since "$began_all")"
[ -z "$failed" ]
