#!/bin/bash
# Runs the fuzz targets one after another: scripts/fuzz.sh SECONDS [TARGET...]. See docs/testing.md.
#
# New inputs stay in fuzz/corpus, which is not kept; what fails is left in fuzz/artifacts, with the command that
# repeats it. The small corpus that is kept, in fuzz/seeds, is run by `cargo test` too.
set -eu -o pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true

if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install cargo-fuzz --locked
fi
# Sanitizers and coverage are unstable options. Any stable compiler has them, too, for who says that he knows.
export RUSTC_BOOTSTRAP=1

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    mapfile -t targets < <(cargo fuzz list)
fi
for target in "${targets[@]}"; do
    echo "== $target, $seconds s"
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target"
    # The leak detector needs ptrace, which containers forbid; memory that is lost shows in the limit.
    cargo fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -detect_leaks=0 -print_final_stats=1
done
