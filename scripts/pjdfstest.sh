#!/bin/sh
# Runs pjdfstest, which checks that system calls on files behave as POSIX says, on a mounted stack.
#
#   sudo scripts/pjdfstest.sh 'wrap / hostdir:/srv/data'      all tests
#   sudo scripts/pjdfstest.sh 'lfs / file:a.img' rename       those with `rename` in their name; a.img has had its mkfs
#   sudo scripts/pjdfstest.sh /srv/data                       a directory that is there already, to compare with
#
# An argument that starts with / or ./ is a directory; anything else is a stack, which is mounted for the time of the
# tests. They work in a directory of their own below the root of the mount and remove it again.
#
# Prints what failed and what was skipped, with reasons, then the counts. Exit code: 0 nothing failed, 1 something did,
# 2 it could not be run. Installs nothing.
#
# SEEKLESS and PJDFSTEST name the programs, if they are elsewhere; LOG a file that gets all that pjdfstest prints.

set -eu

PJDFSTEST_VERSION=0.2.2

cannot() {
    echo "pjdfstest.sh: $1" >&2
    exit 2
}

find_pjdfstest() {
    [ -z "${PJDFSTEST:-}" ] || { command -v "$PJDFSTEST" && return || cannot "there is no program $PJDFSTEST"; }
    command -v pjdfstest || command -v "${CARGO_HOME:-$HOME/.cargo}/bin/pjdfstest" && return
    cannot "there is no pjdfstest here (PJDFSTEST=PROGRAM names one). It is installed by
    apt-get install acl libacl1-dev
    cargo install pjdfstest --version $PJDFSTEST_VERSION"
}

# Sets `program` to what mounts a stack.
find_seekless() {
    program=${SEEKLESS:-${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/release/seekless}
    [ -x "$program" ] || cannot "there is no program $program (SEEKLESS=PROGRAM names another). It is built by
    cargo build --release -p seekless-host"
}

clean_up() {
    code=$?
    trap - EXIT INT TERM
    [ -z "$mounted" ] || unmount || code=2
    rm -rf "$scratch" ${other:+"$other"}
    exit "$code"
}

mount_stack() {
    mkdir "$scratch/mnt"
    "$program" mount "$stack" "$scratch/mnt" -o allow_other || cannot "the stack could not be mounted"
    mounted=yes
}

unmount() {
    mounted=
    "$program" umount "$scratch/mnt"
}

# write_config ALLOW_REMOUNT
write_config() {
    cat <<END
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}

[settings]
# Longer than a tick of any kernel's clock: the granularity of time stamps.
naptime = 0.02
allow_remount = $1

[dummy_auth]
entries = [["nobody", "$(id -gn nobody)"], ["daemon", "$(id -gn daemon)"]]
END
}

# run ALLOW_REMOUNT [PATTERN...]: appends to the log.
run() {
    write_config "$1" >"$scratch/config.toml"
    shift
    code=0
    RUST_BACKTRACE=0 NO_COLOR=1 PATH="$scratch/bin:$PATH" \
        "$pjdfstest" -c "$scratch/config.toml" -p "$directory" -s "$other" "$@" >"$scratch/run.log" 2>&1 || code=$?
    grep -q '^Summary: ' "$scratch/run.log" || { cat "$scratch/run.log" >&2; cannot "pjdfstest ended early ($code)"; }
    cat "$scratch/run.log" >>"$log"
}

# The names of tests come first on a line, their outcome last, and details on indented lines below.
outcomes() {
    awk -v outcome="$1" '/^[^ \t]/ { shown = $NF == outcome } shown && NF' "$log"
}

[ $# -ge 1 ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2; }
stack=$1
shift
[ "$(id -u)" = 0 ] || cannot "only root can run it, because the tests take on other users"
pjdfstest=$(find_pjdfstest)

mounted=
scratch=$(mktemp -d)
other=
trap clean_up EXIT
trap 'exit 2' INT TERM
chmod 755 "$scratch"
log=${LOG:-$scratch/all.log}
: >"$log"

# Tests of read-only mounts call mount(8) to remount. That concerns the kernel alone, so keep helpers out of it.
mkdir "$scratch/bin"
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$scratch/bin/mount"
chmod 755 "$scratch/bin/mount"

case $stack in
    /* | ./*)
        directory=$stack
        # The whole file system becomes read-only for a moment: only if its mount point is named.
        mountpoint -q "$directory" && remount=true || remount=false
        ;;
    *)
        find_seekless
        mount_stack
        directory=$scratch/mnt
        remount=true
        ;;
esac

# A second file system, to which links and renames must fail.
for place in /dev/shm /run /tmp; do
    [ "$(stat -c %d $place)" = "$(stat -c %d "$directory")" ] || { other=$(mktemp -d -p $place); break; }
done
[ -n "$other" ] || cannot "there is no second file system in /dev/shm, /run or /tmp"

if [ $# -gt 0 ]; then
    run $remount "$@"
else
    # By themselves, because other tests leave files open, and then there is no remounting.
    run false
    if [ $remount = true ]; then
        sed -i '/::erofs_.*skipped$/,/^\t/d' "$log"
        run true ::erofs_
    fi
fi

outcomes FAILED
outcomes skipped
count() { grep -c " $1\$" "$log" || true; }
failed=$(count FAILED)
echo "pjdfstest on $stack: passed $(count ok), failed $failed, skipped $(count skipped)"
[ "$failed" = 0 ]
