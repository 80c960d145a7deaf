#!/bin/sh
# What explaining costs: processor time (user and system) of `npudiff explain`, default options, against that of capturing the
# same samples on two devices of the simulator; the fastest of several rounds, in which all are run in turn. Where tools/studies/zoo
# has prepared the wake-word model, also of that one, with its float model. Usage: tools/bench.sh explain [ROUNDS]
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
npudiff=$build/src/cli/npudiff
python=${PYTHON:-/usr/bin/python3}
rounds=${1:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Seconds of processor time and KiB of the largest resident set, to a file. A layer that is not explained is no failure.
timed() { # file command...
    file=$1
    shift
    /usr/bin/time -o "$work/one" -f '%U %S %M' "$@" >/dev/null 2>&1 || true
    tail -1 "$work/one" | awk '{ print $1 + $2, $3 }' >>"$file"
}

measure() { # name model samples [float-model]
    name=$1 model=$2 n=$3
    set -- "$work/captures/gen1.h5" "$work/captures/gen3.h5" ${4:+--float "$4"}
    rm -f "$work"/capture "$work"/explain "$work"/alone
    for _ in $(seq "$rounds"); do
        timed "$work/capture" "$npudiff" capture "$model" -d htp-sim:gen1 -d htp-sim:gen3 -p "uniform:$n" -o "$work/captures" -q -f
        timed "$work/explain" "$npudiff" explain --quantised "$model" "$@" -q
        timed "$work/alone" "$npudiff" explain --quantised "$model" "$@" -q --effect-samples 0
    done
    values=$("$npudiff" explain --quantised "$model" "$@" --json --effect-samples 0 2>/dev/null |
        "$python" -c 'import json, sys; print(sum(l["values"] or 0 for d in json.load(sys.stdin)["devices"] for l in d["layers"]))')
    for part in capture explain alone; do
        awk 'NR == 1 || $1 < least { least = $1 } $2 > most { most = $2 } END { print least, most / 1024 }' "$work/$part"
    done | tr '\n' ' ' | awk -v name="$name" -v n="$n" -v values="$values" '{
        printf "%-22s %3d samples: capture %6.2f s; explain %6.2f s (%.2f x), %3.0f ns per value and device, %4.0f MiB; ", name, n, $1, $3, $3 / $1, $3 / values * 1e9, $4
        printf "without effects %6.2f s (%.2f x), %3.0f ns\n", $5, $5 / $1, $5 / values * 1e9 }'
}

word=${XDG_CACHE_HOME:-$HOME/.cache}/npudiff/zoo/models/wake-word
for n in 4 16 64 256; do
    measure cnn.w8a8 golden/models/cnn.w8a8.onnx $n
    [ ! -e "$word/w8a8.onnx" ] || measure wake-word "$word/w8a8.onnx" $n "$word/float.onnx"
done
for type in uint8 uint16; do
    "$python" tools/bench/make_network.py "$work/$type.onnx" $type 112
    for n in 4 16 64; do
        measure "mobile $type" "$work/$type.onnx" $n
    done
done
