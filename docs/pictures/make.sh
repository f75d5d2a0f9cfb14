#!/bin/bash
# Makes seekless.png anew, the picture of README.md: docs/pictures/make.sh, with the program `seekless` on the PATH, Chromium,
# and the right to mount. On the left is a session that this script runs, as it was printed; on the right the report of
# experiments/ro92-fig8, as a browser shows it.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'seekless umount --lazy "$work/mnt" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
ln -s "$root/docs" docs
ln -s "$root/experiments" experiments

show() { # a command, and its output without what makes lines long
    printf '<b>$ %s</b>\n' "$(sed 's/&/\&amp;/g; s/</\&lt;/g' <<<"$1")"
    eval "$1" 2>/dev/null | sed 's/&/\&amp;/g; s/</\&lt;/g' | LC_ALL=C.UTF-8 sed -E 's/^(.{78}).*/\1/'
}
{
    show "seekless mkfs 'lfs / file:a.img,size=1GiB' | head -n 8"
    mkdir mnt
    show "seekless mount 'lfs / file:a.img' mnt"
    show "cp -r docs/guide mnt/ && seekless sync mnt && ls mnt/guide | head -n 4"
    show "seekless umount mnt"
    show "seekless fsck --data 'lfs / file:a.img'"
    echo
    show "seekless replay docs/samples/shop.trace --timing open --on disk:nearline-4tb --on 'raid0:n=4 / disk:nearline-4tb'"
    echo
    show "seekless run experiments/ro92-fig8 | tail -n 9"
} >session.html
seekless report results/ro92-fig8 -o report.html >/dev/null

shoot() { # page, picture, size
    timeout 90 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=8000 --force-device-scale-factor="${scale:-1}" \
        --window-size="$3" --screenshot="$2" "file://$work/$1" >/dev/null 2>&1
}
shoot report.html report.png 1140,1410
cat >page.html <<PAGE
<!doctype html><meta charset="utf-8"><style>
body { margin: 0; display: flex; gap: 16px; background: #d8dde4; padding: 16px; width: 1500px; box-sizing: border-box }
pre { margin: 0; background: #14181d; color: #d6dde6; padding: 18px; width: 690px; box-sizing: border-box; border-radius: 8px;
      font: 13.5px/1.42 "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow: hidden }
pre b { color: #9fd08a; font-weight: 600 }
img { width: 762px; border-radius: 8px; border: 1px solid #b8bfc8 }
</style><pre>$(cat session.html)</pre><img src="report.png">
PAGE
scale=0.8 shoot page.html "$here/seekless.png" 1500,980
ls -l "$here/seekless.png"
