#!/bin/sh
# What capturing costs: `npudiff capture` of 700 samples with all edges, against a bare inference loop over the same session
# with the same inputs and outputs. Both are run in turn, several times; the ratio of the fastest of each is printed, and
# where the rest of the capture's time goes. Usage: tools/bench.sh capture [ROUNDS]
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
ninja -C "$build" tools/bench/bare_loop >/dev/null
rounds=${1:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

now() { date +%s.%N; }

measure() { # model device
    model=golden/models/$1.onnx
    probe=digits=golden/models/digits-test.npz
    : >"$work/results"
    for _ in $(seq "$rounds"); do
        rm -f "$work/capture.h5"
        start=$(now)
        "$build/tools/bench/bare_loop" "$model" "$2" "$probe" 2>"$work/bare" >/dev/null
        middle=$(now)
        "$build/src/cli/npudiff" capture "$model" -d "$2" -p "$probe" -o "$work/capture.h5" -q
        end=$(now)
        printf '%s %s %s %s\n' "$(grep '^bare ' "$work/bare" | cut -d' ' -f2,3)" "$start" "$middle" "$end" >>"$work/results"
    done
    awk -v what="$1 on $2" '
        function least(a, b) { return NR == 1 || b < a ? b : a }
        { session = least(session, $1); loop = least(loop, $2); bare = least(bare, $4 - $3); capture = least(capture, $5 - $4) }
        END {
            printf "%-28s bare: session %.3f s, loop %.3f s, program %.3f s; capture: %.3f s; ", what, session, loop, bare, capture
            printf "capture / (session + loop) = %.2f, beyond them %.3f s\n", capture / (session + loop), capture - session - loop
        }' "$work/results"
}

measure cnn.w8a8 htp-sim:gen3
measure cnn.w8a8 cpu
