#!/bin/bash
# Runs the fuzz targets one after another: scripts/fuzz.sh SECONDS [TARGET...]. See docs/testing.md.
#
# New inputs stay in fuzz/corpus, which is not kept; what fails is left in fuzz/artifacts, with the command that
# repeats it. The small corpus that is kept, in fuzz/seeds, is run by `cargo test` too.
set -eu -o pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true

if ! command -v c++ >/dev/null 2>&1; then
    echo "fuzz: libFuzzer is C++, and there is no compiler for it:  sudo apt-get install g++" >&2
    exit 1
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install cargo-fuzz --locked
fi
# Coverage is an unstable option. Any stable compiler has it, too; this variable says that it is wanted.
export RUSTC_BOOTSTRAP=1

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    mapfile -t targets < <(cargo fuzz list)
fi
failed=()
for target in "${targets[@]}"; do
    echo "== $target, $seconds s"
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target"
    # No sanitizer: there is no unsafe code in what the targets call, and without it twice as much is tried. Memory that
    # is lost or wasted shows in the limit.
    cargo fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 || failed+=("$target")
done
if [ ${#failed[@]} != 0 ]; then
    echo "fuzz: found something: ${failed[*]}" >&2
    exit 1
fi
