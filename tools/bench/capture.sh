#!/bin/sh
# What capturing costs: `npudiff capture` of 700 samples with all edges, against a bare inference loop over the same session
# with the same inputs and outputs. Both are run in turn, several times; the ratio of the fastest of each is printed, and
# where the rest of the capture's time goes. Then the same in processor time, which is what remains comparable when others
# are at work, for 4 to 256 samples, reruns included, and the most memory that one process had: for the CNN and, where
# tools/studies/zoo has prepared it, the wake-word model. Usage: tools/bench.sh capture [ROUNDS]
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

# COMMAND...   processor seconds of it and its children, and MiB of the largest of them; "- -" when it fails
processor() {
    /usr/bin/python3 -c '
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss // 1024}" if code == 0 else "- -")' "$@"
}

scale() { # name model device
    for samples in 4 16 64 256; do
        : >"$work/results"
        for _ in $(seq "$rounds"); do
            bare=$(processor "$build/tools/bench/bare_loop" "$2" "$3" "uniform:$samples")
            echo "$bare $(processor "$build/src/cli/npudiff" capture "$2" -d "$3" -p "uniform:$samples" -o "$work/capture.h5" -f -q)" \
                >>"$work/results"
        done
        awk -v what="$1 on $3, $samples samples" '
            NR == 1 || $1 < bare { bare = $1 }
            NR == 1 || $3 < capture { capture = $3 }
            { bare_mib = $2; mib = $4 }
            END {
                printf "%-44s bare loop %.2f s, %d MiB; capture %.2f s, %d MiB; ratio %.2f\n", what, bare, bare_mib, capture, mib,
                    capture / bare
            }' "$work/results"
    done
}

word=${XDG_CACHE_HOME:-$HOME/.cache}/npudiff/zoo/models/wake-word/w8a8.onnx
scale CNN golden/models/cnn.w8a8.onnx htp-sim:gen3
[ ! -e "$word" ] || scale wake-word "$word" htp-sim:gen3
