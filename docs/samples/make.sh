#!/bin/bash
# Makes the samples beside it anew: docs/samples/make.sh. What it writes is the same on every machine.
#
# shop.trace: what the database of a small shop asks of its disk in one minute, in the format `seekless` (see
# `seekless trace formats`). Nothing of it was recorded; the numbers of this script are all that there is to know:
#
#   * 20 times a second, at random moments: a read of 8 KiB at a random place of a table of 2 GiB;
#   * 12 times a second: a commit, which appends 4 KiB to a log of 64 MiB and must be durable (FUA);
#   * every 10 seconds: a checkpoint, which writes 150 pages of 8 KiB at random places of the table, as fast as it can,
#     and then flushes.
#
# files: a directory with text of several kinds, and one file of random letters, which hardly gets smaller.
set -eu -o pipefail
cd "$(dirname "$0")"

# A linear congruential generator of our own, because awk's rand() is another one in each awk (Numerical Recipes, "quick
# and dirty": 2^32 modulus; products stay below 2^53).
awk '
function draw(n) { state = (state * 1664525 + 1013904223) % 4294967296; return int(state / 4294967296 * n) }
function emit(t, op, at, bytes, flags) { printf "%015.0f,8:0,%s,%.0f,%d,%s,,,\n", t, op, at, bytes, flags }
BEGIN {
    state = 1; MIB = 1048576; TABLE = 128 * MIB; PAGES = 2048 * MIB / 8192
    for (i = 0; i < 1200; i++) emit(draw(60000000) * 1000, "read", TABLE + draw(PAGES) * 8192, 8192, "")
    for (i = 0; i < 720; i++) commit[i] = draw(60000000) * 1000
    # The log is written in order of time.
    n = 720
    for (i = 1; i < n; i++) { x = commit[i]; for (j = i - 1; j >= 0 && commit[j] > x; j--) commit[j + 1] = commit[j]; commit[j + 1] = x }
    for (i = 0; i < n; i++) emit(commit[i], "write", i * 4096, 4096, "FS")
    for (c = 1; c <= 5; c++) {
        t = c * 10000000000
        for (i = 0; i < 150; i++) emit(t + i * 100000, "write", TABLE + draw(PAGES) * 8192, 8192, "")
        emit(t + 150 * 100000, "flush", 0, 0, "")
    }
}' </dev/null | LC_ALL=C sort | sed 's/^0*\([0-9]\)/\1/' |
    sed '1i time_ns,device,op,offset,bytes,flags,latency_ns,process,cpu' >shop.trace

mkdir -p files/notes
for month in 01 02 03 04 05 06; do
    for day in 05 12 19 26; do
        printf 'Meeting of 2026-%s-%s\n\nPresent: everybody. The till of branch %s was short by %s cents.\nNext meeting in a week.\n' \
            "$month" "$day" "$((10#$day % 4))" "$((10#$month * 10#$day))" >"files/notes/2026-$month-$day.txt"
    done
done
awk 'BEGIN {
    print "hour,branch,visitors,sales"
    for (hour = 0; hour < 1000; hour++) for (branch = 0; branch < 4; branch++) {
        visitors = (hour % 24 >= 8 && hour % 24 < 20) ? (hour * 7 + branch * 13) % 40 : 0
        print hour "," branch "," visitors "," visitors * (3 + branch)
    }
}' </dev/null >files/visitors.csv
awk 'BEGIN {
    state = 2
    for (i = 0; i < 8192; i++) { state = (state * 1664525 + 1013904223) % 4294967296; printf "%c", 33 + int(state / 4294967296 * 94) }
}' </dev/null >files/noise.txt
