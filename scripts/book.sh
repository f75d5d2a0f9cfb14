#!/bin/bash
# Makes the book as HTML: scripts/book.sh [FOLDER], by default target/book. Needs mdbook.
#
# The pages of docs/ lead to pages, sources and experiments beside them. mdbook knows only what is in its folder, so the book is
# made of a copy that has those files at the same places: README.md is its first chapter, and every other page a chapter.
set -eu -o pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "${1:-target/book}")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# Pages outside docs/ that are chapters, in their order.
chapters=(README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md)
mapfile -t formats < <(git ls-files 'crates/*/FORMAT.md' 2>/dev/null || find crates -name FORMAT.md | sort)

# Pages that other pages lead to.
others=()

put() { # a file of the project, at the same place in the copy
    mkdir -p "$copy/$(dirname "$1")"
    cp -R "$1" "$copy/$1"
}
for page in "${chapters[@]}" "${formats[@]}" docs; do
    put "$page"
done

# Files that the pages lead to. A link to a folder of sources leads to the file that introduces it.
while read -r page; do
    folder=$(dirname "$page")
    while read -r link; do
        target=$(realpath -m --relative-to=. "$folder/$link")
        if [[ -d $target ]]; then
            for first in "$target/mod.rs" "$target.rs" "$target/README.md" "$target/Cargo.toml" "$target/src/lib.rs"; do
                [[ -f $first ]] || continue
                sed -i "s|](${link}\([)#]\)|]($(realpath -m --relative-to="$folder" "$first")\1|g" "$copy/$page"
                target=$first
                break
            done
        fi
        if [[ -f $target && ! -e $copy/$target ]]; then
            put "$target"
            [[ $target == *.md ]] && others+=("$target")
        fi
    done < <(grep -ohE '\]\([^):#]+' "$page" | sed 's/^](//' | sort -u)
done < <(printf '%s\n' "${chapters[@]}" "${formats[@]}" && find docs -name '*.md')

title_of() { # the first line of a page
    head -n 1 "$1" | sed 's/^# //'
}
{
    echo '# Summary'
    echo
    echo '[Seekless](README.md)'
    # Its last part is about code.
    sed -e 1d -e 's|](\([a-z]\)|](docs/\1|' -e 's|](\.\./|](|' docs/SUMMARY.md
    for page in "${formats[@]}" "${others[@]}"; do
        echo "- [$(title_of "$page")]($page)"
    done
} >"$copy/SUMMARY.md"
cp docs/book.toml docs/book.css "$copy/"

# A folder's page is its index; this book's list of chapters is beside each page.
find "$copy" -name '*.md' -exec sed -i -e 's|](\([^):]*\)README\.md|](\1index.md|g' -e 's|](docs/SUMMARY\.md|](docs/tutorial.md|g' {} +
find "$copy" -name README.md -execdir mv {} index.md \;
mdbook build "$copy" --dest-dir "$out"

# Every link inside the book leads somewhere.
broken=0
while read -r page; do
    while read -r link; do
        file=${link%%#*}
        if [[ -n $file && ! -e $(dirname "$page")/$file ]]; then
            echo "book: ${page#"$out/"} leads to $link, which is not there" >&2
            broken=1
        fi
    done < <(sed -n '/<main>/,/<\/main>/p' "$page" | grep -oE '(href|src)="[^":]+"' | sed -E 's/^[a-z]+="//; s/"$//' | sort -u)
done < <(find "$out" -name '*.html' ! -name print.html ! -name 404.html ! -name toc.html)
exit "$broken"
