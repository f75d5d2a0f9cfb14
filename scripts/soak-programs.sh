#!/bin/bash
# Runs programs that are known to find mistakes in file systems, on mounts of several stacks:
#
#   scripts/soak-programs.sh [SECONDS] [STACK...]
#
# Each program gets about SECONDS (30) on each stack: stress-ng's file-system stressors, fsx, fio with verification, SQLite,
# PostgreSQL, git. What is not installed is named and left out. After each stack the volume is unmounted and checked. Exit
# code: 0 nothing failed, 1 something did, 2 it could not be run.
#
# SEEKLESS names the program, if it is elsewhere; SOAK_PATIENCE says how many seconds more than expected a program may take.
set -eu -o pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
shift $(($# > 0))
[ $# -gt 0 ] || set -- 'lfs / file:a.img' 'vlfs / file:a.img' 'ffs / file:a.img' 'ffs:metadata=softdep / file:a.img' \
    'zstd / hostdir:data' 'zstd / lfs / file:a.img' 'encrypt:a.key / hostdir:data' 'lfs / raid1:n=2 / file:a-{}.img' \
    'lfs / raid5:n=3 / file:a-{}.img'

program=$(realpath "${SEEKLESS:-${CARGO_TARGET_DIR:-target}/release/seekless}")
[ -x "$program" ] || { echo "soak-programs: there is no program $program" >&2; exit 2; }
[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] || { echo "soak-programs: mounting needs root and /dev/fuse" >&2; exit 2; }

scratch=$(mktemp -d)
chmod 755 "$scratch"
cleaned_up() {
    mountpoint -q "$scratch/mnt" && "$program" umount "$scratch/mnt"
    rm -rf "$scratch"
}
trap cleaned_up EXIT
cd "$scratch"

has() {
    command -v "$1" >/dev/null && return
    echo "soak-programs: no $1 here, left out"
    return 1
}

# Fails with the end of what the program said.
try() {
    local what=$1 status=0 patience=$((seconds * 10 + ${SOAK_PATIENCE:-300})) how
    shift
    timeout --kill-after=30 $patience "$@" >log 2>&1 || status=$?
    if [ $status -ne 0 ]; then
        tail -n 40 log
        how="ended with $status"
        [ $status -eq 124 ] && how="did not end within $patience s: it hangs, or the machine is too busy (SOAK_PATIENCE=3000 waits longer)"
        echo "soak-programs: $what on '$stack' $how"
        exit 1
    fi
    echo "soak-programs: $what on '$stack': right"
}

with_sqlite() {
    local rows=$((seconds * 200))
    {
        echo "pragma journal_mode=$1; pragma synchronous=full; create table t(k integer primary key, v text);"
        for ((i = 0; i < rows; i++)); do
            echo "insert or replace into t values($((RANDOM % 500)), hex(randomblob($((RANDOM % 3000)))));"
        done
        echo "delete from t where k % 3 = 0; vacuum; pragma integrity_check;"
    } | sqlite3 mnt/"$1.db" | tail -n 1 | grep -qx ok
}

with_git() {
    rm -rf mnt/git
    git init -q mnt/git
    local end=$((SECONDS + seconds))
    while [ $SECONDS -lt $end ]; do
        for ((i = 0; i < 40; i++)); do
            head -c $((RANDOM * 2)) /dev/urandom >"mnt/git/f$((RANDOM % 200))"
        done
        git -C mnt/git -c core.fsync=all add -A
        git -C mnt/git -c core.fsync=all -c user.name=soak -c user.email=soak@localhost commit -q -m more
        git -C mnt/git gc -q
        git -C mnt/git fsck --full --strict
    done
}

with_postgres() {
    local bin=$1
    rm -rf mnt/pg
    mkdir mnt/pg
    chown postgres mnt/pg
    local as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    "${as[@]}" "$bin/initdb" -D "$scratch/mnt/pg" --data-checksums -A trust
    "${as[@]}" "$bin/pg_ctl" -D "$scratch/mnt/pg" -w -o "-k $scratch/mnt/pg -h ''" start
    "${as[@]}" "$bin/pgbench" -h "$scratch/mnt/pg" -i -s 2 postgres
    "${as[@]}" "$bin/pgbench" -h "$scratch/mnt/pg" -c 8 -T "$seconds" postgres
    "${as[@]}" "$bin/pg_ctl" -D "$scratch/mnt/pg" -w -m immediate stop
    "${as[@]}" "$bin/pg_ctl" -D "$scratch/mnt/pg" -w -o "-k $scratch/mnt/pg -h ''" start
    "${as[@]}" "$bin/psql" -h "$scratch/mnt/pg" -c 'select sum(abalance) from pgbench_accounts' postgres
    "${as[@]}" "$bin/pg_ctl" -D "$scratch/mnt/pg" -w stop
    "${as[@]}" "$bin/pg_checksums" -D "$scratch/mnt/pg"
}

run_all() {
    if has stress-ng; then
        # FFS keeps no extended attributes.
        local stressors="hdd rename link dir iomix aio dirdeep dentry fallocate fiemap filename flock seek sync-file utime"
        [[ $stack == ffs* ]] || stressors+=" xattr"
        for stressor in $stressors; do
            try "stress-ng $stressor" stress-ng --$stressor 4 --timeout "$((seconds / 8 + 2))" --temp-path "$scratch/mnt" --verify
        done
    fi
    has fsx && try fsx fsx -N $((seconds * 500)) -S "$RANDOM" mnt/fsx
    if has fio; then
        try fio fio --name=verify --directory="$scratch/mnt" --rw=randwrite --bsrange=1k-256k --size=64m --numjobs=4 \
            --verify=crc32c --fsync=16 --verify_fatal=1 --group_reporting
    fi
    if has sqlite3; then
        for journal in wal delete; do
            try "SQLite ($journal)" bash -c "seconds=$seconds; $(declare -f with_sqlite); set -eu -o pipefail; with_sqlite $journal"
        done
    fi
    has git && try git bash -c "seconds=$seconds; $(declare -f with_git); set -eu; with_git"
    local bin
    bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
    if [ -x "$bin/initdb" ] && [ -x "$bin/pgbench" ] && id postgres >/dev/null 2>&1; then
        try PostgreSQL bash -c "seconds=$seconds scratch=$scratch; $(declare -f with_postgres); set -eu; with_postgres $bin"
    else
        echo "soak-programs: no PostgreSQL here, left out"
    fi
    return 0
}

mkdir mnt
for stack; do
    rm -rf data a*.img a.key
    mkdir data
    case $stack in *a.key*) "$program" key a.key ;; esac
    case $stack in *.img*)
        below=${stack#zstd / }
        "$program" mkfs -q "${below/.img/.img,size=2GiB}" ;;
    esac
    "$program" mount "$stack" mnt -o allow_other
    run_all
    "$program" umount mnt
    "$program" fsck -n --data "$stack" >log 2>&1 || { cat log; echo "soak-programs: '$stack' is damaged"; exit 1; }
done
echo "soak-programs: nothing failed"
