#!/bin/bash
# Installs or removes the program, its manual pages, its completions, the experiments and the samples:
# scripts/install.sh [--remove] PREFIX. PROGRAM names another than that of `make build`.
#
# Pages and completions come from the program itself, so they say what it does.
set -eu -o pipefail
cd "$(dirname "$0")/.."

remove=
if [ "${1:-}" = --remove ]; then
    remove=yes
    shift
fi
prefix=${1:?where to, for example /usr/local}
program=${PROGRAM:-target/release/seekless}
bin=$prefix/bin/seekless
man=$prefix/share/man/man1
man5=$prefix/share/man/man5
bash=$prefix/share/bash-completion/completions/seekless
zsh=$prefix/share/zsh/site-functions/_seekless
share=$prefix/share/seekless
fish=$prefix/share/fish/vendor_completions.d/seekless.fish

if [ -n "$remove" ]; then
    rm -fv "$bin" "$bash" "$zsh" "$fish" "$man"/seekless.1 "$man"/seekless-*.1 "$man5"/seekless-stack.5
    rm -rfv "$share"
    exit
fi

install -D -m 755 "$program" "$bin"
# Function names stay, so that a backtrace says where. The linker's note is a digest of all that it was given, folders among it: without
# it, the same sources make the same program anywhere.
! command -v strip >/dev/null || strip --strip-debug --remove-section=.note.gnu.build-id "$bin"
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$program" man "$pages"
for page in "$pages"/*.1; do
    install -D -m 644 "$page" "$man/$(basename "$page")"
done
install -D -m 644 "$pages/seekless-stack.5" "$man5/seekless-stack.5"
for shell in bash zsh fish; do
    "$program" completions "$shell" >"$pages/completions"
    install -D -m 644 "$pages/completions" "${!shell}"
done
for folder in experiments docs/samples; do
    (cd "$folder" && find . -type f) | while read -r file; do
        mode=644
        [ ! -x "$folder/$file" ] || mode=755
        install -D -m $mode "$folder/$file" "$share/$(basename "$folder")/$file"
    done
done
install -D -m 644 crates/seekless-host/assets/grafana.json "$share/grafana.json"
echo "installed $bin, manual pages and completions; \`make uninstall\` with the same PREFIX removes them"
