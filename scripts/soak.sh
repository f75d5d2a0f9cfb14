#!/bin/bash
# Runs the tests that draw from a seed with ever new seeds: scripts/soak.sh MINUTES [FIRST-SEED]. See docs/testing.md.
#
# The first failure ends the run; its report names the command that repeats it.
set -eu -o pipefail
cd "$(dirname "$0")/.."

minutes=${1:-60}
# A day has seeds of its own, so that runs on several days do not repeat each other.
seed=${2:-$(date +%Y%m%d)00000}
# Tests that take their seeds from `Replay::seeds`, and seeds of each for one round.
tests=(tests::crash tests::model several_clients seeded_noise)
# The crates of the engine that have such tests.
engine=(-p seekless -p seekless-testing -p seekless-vlog -p seekless-logfs -p seekless-ffs -p seekless-layer)
round=20
# A third of the time is for real processes and programs on mounts, at the end.
end=$((SECONDS + minutes * 60 * 2 / 3))
log=$(mktemp)
trap 'rm -f "$log"' EXIT

cargo test --release "${engine[@]}" --lib --test engine --locked --no-run
cargo test --release -p seekless-host --test processes --locked --no-run
first=$seed
while [ $SECONDS -lt $end ]; do
    echo "soak: seeds from $seed on"
    if ! SEEKLESS_SEED=$seed SEEKLESS_SOAK=$round \
        cargo test --release "${engine[@]}" --lib --test engine --locked -q -- "${tests[@]}" >"$log" 2>&1; then
        cat "$log"
        echo "soak: failed after seeds $first to $seed; the report above says what to run"
        exit 1
    fi
    seed=$((seed + round))
done
echo "soak: no failure with seeds $first to $((seed - 1))"

# Forty rounds of kill -9 for each stack, on one volume each, again with another seed as long as there is time. These take turns
# by themselves, so that the daemon of each has a processor.
end=$((SECONDS + minutes * 60 / 3))
processes=$seed
while :; do
    echo "soak: real processes, seed $processes"
    if ! SEEKLESS_SEED=$processes SEEKLESS_SOAK=20 cargo test --release -p seekless-host --test processes --locked -q -- \
        --nocapture >"$log" 2>&1; then
        cat "$log"
        echo "soak: failed with seed $processes; the report above says what to run"
        exit 1
    fi
    grep acknowledgements "$log"
    processes=$((processes + 1))
    [ $SECONDS -lt $end ] || break
done

cargo build --release -p seekless-host --locked -q
scripts/soak-programs.sh $((minutes / 4 + 5)) || [ $? = 2 ] # Where nothing can be mounted, it has said so.
