#!/bin/sh
# What things cost. Usage: tools/bench.sh                        everything
#                          tools/bench.sh capture [ROUNDS]       capturing, against a bare inference loop
#                          tools/bench.sh compare [SECTION ...]  comparing, against h5diff, cmp and numpy
# Of builds in build/, or in the folder that BUILD names.
set -eu
cd "$(dirname "$0")/.."
what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
all | capture | compare) ;;
*) sed -n '2,5s/^# \{0,1\}//p' tools/bench.sh >&2; exit 2 ;;
esac
tools/setup --tests >/dev/null
tools/build "${BUILD:-build}" >/dev/null
[ "$what" = compare ] || tools/bench/capture.sh "$@"
[ "$what" = capture ] || tools/bench/compare.sh "$@"
