#!/bin/bash
# Runs the tests that draw from a seed with one new seed after another: scripts/soak.sh MINUTES [FIRST-SEED].
#
# Which tests those are is found out, not listed: every test that prints `SEEKLESS_SEED=` when it fails reads it, too.
# The first failure ends the run; its report names the command that repeats it.
set -eu -o pipefail
cd "$(dirname "$0")/.."

minutes=${1:-60}
# A day has a seed of its own, so that runs on several days do not repeat each other.
seed=${2:-$(date +%Y%m%d)0000}
end=$((SECONDS + minutes * 60))

cargo test --release --workspace --locked --no-run
rounds=0
while [ $SECONDS -lt $end ]; do
    if ! SEEKLESS_SEED=$seed cargo test --release --workspace --locked -q -- seeded >soak.log 2>&1; then
        cat soak.log
        echo "soak: failed with SEEKLESS_SEED=$seed after $rounds rounds"
        exit 1
    fi
    rounds=$((rounds + 1))
    seed=$((seed + 1))
done
rm -f soak.log
echo "soak: $rounds rounds without failure, up to SEEKLESS_SEED=$((seed - 1))"
