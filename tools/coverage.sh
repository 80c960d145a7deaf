#!/bin/sh
# Simulates studies and counts how often the statistics of the judge are right: the table of
# docs/science/statistics.md#coverage. Usage: tools/coverage.sh [STUDIES [SEED]]     10000 studies a row take some minutes
set -eu
cd "$(dirname "$0")/.."
[ -f build/build.ninja ] || meson setup build >/dev/null
ninja -C build --quiet tools/coverage/interval_coverage
exec build/tools/coverage/interval_coverage "$@"
