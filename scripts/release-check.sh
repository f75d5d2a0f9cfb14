#!/bin/bash
# What must be right before a version gets its tag: make release-check. Each step has its log in target/release-check; a step that
# passed for this commit is not repeated, so that an interrupted run goes on. STEPS='tests deb' takes these alone.
#
# As root, for what the tests of packages need. It takes about two hours on two cores, and the step `pages`, which has not been
# timed as a whole, perhaps as long again: it measures all mounts.
set -u -o pipefail
cd "$(dirname "$0")/.."

logs=target/release-check
mkdir -p "$logs"
commit=$(git rev-parse HEAD) || exit 1
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)
# Most bytes of what people download.
package_bytes_max=$((16 << 20))
wheel_bytes_max=$((40 << 20))
sealed=$(mktemp -d)
trap 'rm -rf "$sealed"' EXIT

tree() { # nothing is forgotten, and the lock files are those of the sources
    local changed
    changed=$(git status --porcelain) || return 1
    [ -z "$changed" ] || { echo "not committed:"; echo "$changed"; return 1; }
    make --no-print-directory locks
}

changelog() { # the version has a part of its own, with a date
    grep -qE "^## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
        { echo "CHANGELOG.md has no line \`## $version, YYYY-MM-DD\`; it has: $(grep -m1 '^## ' CHANGELOG.md)"; return 1; }
}

tests() { .ci/run; }

pages() { # blocks of commands that take too long for a test, as they are written
    SEEKLESS_PAGES=all SEEKLESS_REQUIRE=${SEEKLESS_REQUIRE:-root,fuse} cargo test --release --locked -p seekless-host --test pages \
        -- --exact long::long_commands_of_pages_work --nocapture
}

licences() { # of all dependencies, of the parts outside the workspace too; deny.toml lists those that are allowed
    command -v cargo-deny >/dev/null || cargo install --locked cargo-deny || return 1
    for manifest in Cargo.toml python/Cargo.toml; do
        cargo deny --manifest-path "$manifest" --config "$PWD/deny.toml" check licenses bans sources || return 1
    done
}

book() { # must be built, not only readable
    command -v mdbook >/dev/null || cargo install --locked mdbook || return 1
    make --no-print-directory doc
}

deb() { make --no-print-directory deb-test; }
tarball() { make --no-print-directory tarball-test; }
wheel() { SEEKLESS_REQUIRE=schedulers make --no-print-directory wheel-test; } # with Ray

reproducible() { # another copy of the sources, at another path, makes the same package
    local copy=$sealed/elsewhere made
    made=$(sha256sum <"$(ls -t target/seekless_*.deb | head -n1)") || return 1
    git clone -q . "$copy" || return 1
    (cd "$copy" && env -u CARGO_TARGET_DIR make --no-print-directory deb) || return 1
    [ "$made" = "$(sha256sum <"$(ls "$copy"/target/seekless_*.deb)")" ] || { echo "the two packages differ"; return 1; }
}

size() {
    local file most bytes
    for file in target/seekless_*.deb target/seekless-*-linux-*.tar.gz target/wheels/seekless-*.whl; do
        case $file in *.whl) most=$wheel_bytes_max ;; *) most=$package_bytes_max ;; esac
        bytes=$(stat -c %s "$file") || return 1
        echo "$file: $bytes bytes, at most $most"
        [ "$bytes" -le "$most" ] || return 1
    done
}

demo() { # of the packaged program
    dpkg-deb --extract "$(ls -t target/seekless_*.deb | head -n1)" "$sealed/deb" || return 1
    SEEKLESS=$sealed/deb/usr/bin/seekless scripts/demo.sh
}

failed=
for step in ${STEPS:-tree changelog tests pages licences book deb tarball wheel reproducible size demo}; do
    if [ "$(cat "$logs/$step.passed" 2>/dev/null)" = "$commit" ]; then
        printf '%-13s passed before\n' "$step"
        continue
    fi
    began=$SECONDS
    if "$step" >"$logs/$step.log" 2>&1; then
        echo "$commit" >"$logs/$step.passed"
        printf '%-13s passed, %s s\n' "$step" $((SECONDS - began))
    else
        failed+=" $step"
        printf '%-13s FAILED: %s\n' "$step" "$logs/$step.log"
        tail -n 3 "$logs/$step.log" | sed 's/^/    /'
    fi
done
[ -z "$failed" ] || { echo "not ready:$failed"; exit 1; }
echo "ready: git tag -s v$version"
