#!/bin/bash
# Runs all tests: scripts/test.sh [CARGO]. `make test` does so after its lints; see docs/testing.md.
#
# The program's tests wait most of their time, for daemons, for timers, for the disk; those of the other crates only compute. So both
# run at once: the others with a lower priority, in the time that is left, and their output comes afterwards. A failure of either
# fails, when both have ended.
set -u -o pipefail
cd "$(dirname "$0")/.."

cargo=("${@:-cargo}")
# Once for both, as a build waits for any other one.
"${cargo[@]}" test --workspace --locked --no-run || exit

log=$(mktemp)
others=
trap '[ -z "$others" ] || kill "$others" 2>/dev/null; rm -f "$log"' EXIT
(
    trap - INT QUIT # In the background a shell ignores Ctrl-C.
    exec nice -n 10 "${cargo[@]}" test --workspace --exclude seekless-host --locked >"$log" 2>&1
) &
others=$!

failed=0
"${cargo[@]}" test -p seekless-host --locked || failed=$?
[ $failed = 0 ] || echo "test: the tests of seekless-host have failed, see above; those of the other crates:" >&2
tail -n +1 -f --pid="$others" "$log"
wait "$others" || failed=$?
exit $failed
