#!/bin/sh
# What things cost. Usage: tools/bench.sh                        everything
#                          tools/bench.sh capture [ROUNDS]       capturing, against a bare inference loop
#                          tools/bench.sh compare [SECTION ...]  comparing, against h5diff, cmp and numpy
#                          tools/bench.sh explain [ROUNDS]       explaining, against capturing
#                          tools/bench.sh checks [ROUNDS]        opening, comparing and capturing, with their checks and without
# Of builds in build/, or in the folder that BUILD names.
set -eu
cd "$(dirname "$0")/.."
what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
all | capture | compare | explain | checks) ;;
*) sed -n '2,7s/^# \{0,1\}//p' tools/bench.sh >&2; exit 2 ;;
esac
tools/setup --tests >/dev/null
tools/build "${BUILD:-build}" >/dev/null
case $what in all | capture) tools/bench/capture.sh "$@" ;; esac
case $what in all | compare) tools/bench/compare.sh "$@" ;; esac
case $what in all | explain) tools/bench/explain.sh "$@" ;; esac
case $what in all | checks) /usr/bin/python3 tools/bench/checks.py "$@" ;; esac
