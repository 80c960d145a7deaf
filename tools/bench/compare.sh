#!/bin/sh
# What comparing costs: `npudiff compare` with all its statistics, against h5diff, cmp and numpy on the same captures, which
# lie in the page cache. One row for each thing that is promised: seconds of npudiff and of the other (each the fastest of
# several runs), their ratio and what is asked of it; then how long two threads need to do nothing but read the same
# numbers uncompressed ("read s"), npudiff's time as a multiple of that, and for compressed captures how long they need
# to read the files as they are ("files s"). "(4 x 1/4)": the other had a quarter of the data, and its time is multiplied.
# h5diff runs without -q, which is no faster.
#
# Both answers are checked: elements that differ were put there on purpose and counted. An answer that is wrong ends in exit
# code 1; a row that falls short does not. The captures are made, and deleted, in a folder under $TMPDIR (at most 6 GiB; as
# much memory should be free). BENCH_MIB is the size of a tensor (512).
# Usage: tools/bench.sh compare [SECTION ...]   sections: float half codes dense deflate edges
set -eu
cd "$(dirname "$0")/../.."
bench=$PWD/tools/bench
build=$(cd "${BUILD:-build}" && pwd)
mib=${BENCH_MIB:-512}
dataset=/probes/bench/outputs/t
ninja -C "$build" tools/bench/make_captures tools/bench/read_limit tools/bench/fastest >/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
free_mib=$(df -Pk "$work" | awk 'NR == 2 {print int($4 / 1024)}')
if [ "$free_mib" -lt $((mib * 12)) ]; then
    echo "bench: $((mib * 12)) MiB are needed in $work, $free_mib are free; set TMPDIR" >&2
    exit 2
fi
awk '$1 > 0.7 {print "bench: the load is " $1 ": with others at work no figure here means much"}' /proc/loadavg >&2
cd "$work"
wrong=0

# DTYPE MIB LEVEL FILE:FRACTION...   one edge of so many MiB
make_captures() {
    case $1 in float32) bytes=4 ;; float16 | uint16) bytes=2 ;; *) bytes=1 ;; esac
    dtype=$1 elements=$(($2 * 1048576 / bytes)) level=$3
    shift 3
    "$build/tools/bench/make_captures" "$dtype" "$elements" 1 "$level" 1 "$@" >>made
}
planted() { awk -v file="$1" '$1 == file {print $2}' made; }
packed() { awk -v file="$1" '$1 == file {printf "%.2f", $3 / $4}' made; }

# OUTPUT ROUNDS COMMAND...   seconds, "-" when the command fails; what it prints lies in OUTPUT
seconds() {
    output=$1 rounds=$2
    shift 2
    "$build/tools/bench/fastest" "$rounds" 20 "$output" "$@" || echo -
}
npudiff() { seconds npudiff.json 5 "$build/src/cli/npudiff" compare --json "$@"; }
h5diff_seconds() { seconds h5diff.txt "$1" h5diff "$2" "$3" $dataset; }
scaled() { awk -v factor="$1" '{print $1 == "-" ? "-" : factor * $1}'; }
read_limit() { "$build/tools/bench/read_limit" 5 "$@"; }

# What the last run found: of each pair with the first capture, in order. Nothing when it failed.
npudiff_found() {
    /usr/bin/python3 -c 'import json, sys
for edge in json.load(open(sys.argv[1]))["tensors"]:
    print(*[pair["differing"] for pair in edge["pairs"] if pair["ref"] == 0])' npudiff.json 2>/dev/null || true
}
h5diff_found() { awk '/differences? found/ {n = $1} END {print n + 0}' h5diff.txt; }
expect() { # WHO, FOUND, PLANTED
    [ "$2" = "$3" ] && return
    echo "bench: $1 finds '$2' differing elements; '$3' were planted" >&2
    wrong=1
}

header() {
    printf '%-50s %9s %7s %9s %8s %8s %8s %7s %8s  %s\n' work "npudiff s" against "s" ratio asked "read s" "x read" "files s" result
}
# WORK NPUDIFF_S OTHER OTHER_S ASKED READ_S [FILES_S]   ASKED: ">= N" times as fast, "<= N" times the other's seconds
row() {
    awk -v work="$1" -v ours="$2" -v other="$3" -v theirs="$4" -v asked="$5" -v limit="$6" -v files="${7:--}" '
    BEGIN {
        split(asked, bar, " ")
        is_timed = ours != "-" && theirs != "-"
        if (is_timed)
            ratio = bar[1] == "<=" ? ours / theirs : theirs / ours
        result = is_timed && (bar[1] == "<=" ? ratio <= bar[2] + 0 : ratio >= bar[2] + 0) ? "pass" : "short"
        printf "%-50s %9s %7s %9s %8s %8s %8s %7s %8s  %s\n", work, seconds(ours), other, seconds(theirs),
            is_timed ? sprintf("%.2f", ratio) : "-", asked, seconds(limit),
            ours != "-" && limit != "-" ? sprintf("%.2f", ours / limit) : "-", seconds(files), bar[2] == "" ? "" : result
    }
    function seconds(s) { return s == "-" ? s : sprintf("%.4f", s) }'
}

bench_float() {
    make_captures float32 "$mib" 0 f0:0 f1:1e-6 f2:1e-6 f3:1e-6 f4:1e-6 f5:1e-6 f6:1e-6 f7:1e-6
    cp f0 same
    sync
    limit=$(read_limit f0 f1)
    few=$(npudiff f0 f1)
    expect npudiff "$(npudiff_found)" "$(planted f1)"
    equal=$(npudiff f0 same)
    expect npudiff "$(npudiff_found)" 0
    cmp=$(seconds /dev/null 5 cmp f0 same)
    row "float32, 1e-6 differ" "$few" cmp "$cmp" ">= 2" "$limit"
    row "float32, equal (digests)" "$equal" cmp "$cmp" "" "$limit"
    verified=$(npudiff --verify-digests f0 same)
    expect npudiff "$(npudiff_found)" 0
    row "float32, equal, --verify-digests" "$verified" cmp "$cmp" "" "$limit"
    row "float32, 1e-6 differ" "$few" h5diff "$(h5diff_seconds 3 f0 f1)" ">= 10" "$limit"
    expect h5diff "$(h5diff_found)" "$(planted f1)"
    /usr/bin/python3 "$bench/numpy_compare.py" 2 f0 f1 $dataset >numpy.txt
    row "float32, 1e-6 differ" "$few" numpy "$(cut -d' ' -f1 numpy.txt)" ">= 30" "$limit"
    expect numpy "$(cut -d' ' -f2 numpy.txt)" "$(planted f1)"
    eight_reads=$(read_limit f0 | scaled 8)
    limit=$(read_limit f0 f1 f2 f3 f4 f5 f6 f7)
    eight=$(npudiff --all-pairs f0 f1 f2 f3 f4 f5 f6 f7)
    row "float32, 8 captures, --all-pairs" "$eight" "8 reads" "$eight_reads" "<= 1.5" "$limit"
    expect npudiff "$(npudiff_found)" "$(for i in 1 2 3 4 5 6 7; do planted f$i; done | paste -sd ' ')"
}

# h5diff converts every half: a quarter of the data, once, has to do.
bench_half() {
    make_captures float16 "$mib" 0 base:0 few:1e-6 many:0.1
    make_captures float16 $((mib / 4)) 0 base4:0 few4:1e-6 many4:0.1
    for change in few many; do
        limit=$(read_limit base $change)
        ours=$(npudiff base $change)
        expect npudiff "$(npudiff_found)" "$(planted $change)"
        theirs=$(h5diff_seconds 1 base4 ${change}4 | scaled 4)
        expect h5diff "$(h5diff_found)" "$(planted ${change}4)"
        row "float16, $(fraction $change) differ (4 x 1/4)" "$ours" h5diff "$theirs" ">= 100" "$limit"
    done
}
fraction() { [ "$1" = few ] && echo 1e-6 || echo "10 %"; }

bench_codes() {
    make_captures uint8 "$mib" 0 base:0 few:1e-6 many:0.1
    for change in few many; do
        limit=$(read_limit base $change)
        ours=$(npudiff base $change)
        expect npudiff "$(npudiff_found)" "$(planted $change)"
        row "uint8 codes, $(fraction $change) differ by 1" "$ours" h5diff "$(h5diff_seconds 3 base $change)" ">= 10" "$limit"
        expect h5diff "$(h5diff_found)" "$(planted $change)"
    done
}

# Little, a tenth, half and everything differs. All in processor time, the least of BENCH_ROUNDS (7) interleaved rounds: it
# is what remains comparable when others are at work on the machine. Of the read (both ways once) half is taken. cmp gets
# two equal files of the size.
bench_dense() {
    rounds=${BENCH_ROUNDS:-7}
    for type in uint8 uint16 float16 float32; do
        make_captures $type $((mib / 4)) 0 $type.base:0 $type.few:1e-6 $type.tenth:0.1 $type.half:0.5 $type.all:1
        cp $type.base same
        for change in few tenth half all; do
            : >times
            for round in $(seq "$rounds"); do
                for run in npudiff h5diff cmp read; do
                    # h5diff converts every half, which takes seconds.
                    [ $type.$run.$round = float16.h5diff.1 ] || [ $type.$run != float16.h5diff ] || continue
                    case $run in
                    npudiff) set -- "$build/src/cli/npudiff" compare --json $type.base $type.$change ;;
                    h5diff) set -- h5diff $type.base $type.$change $dataset ;;
                    cmp) set -- cmp $type.base same ;;
                    read) set -- "$build/tools/bench/read_limit" 1 $type.base $type.$change ;;
                    esac
                    echo "$run $("$build/tools/bench/fastest" -c 1 60 $run.out "$@" || echo -)" >>times
                done
            done
            cp npudiff.out npudiff.json
            expect npudiff "$(npudiff_found)" "$(planted $type.$change)"
            dense_row "$type, $(share_of $change) differ" "$((mib / 4))" $type
        done
    done
}
share_of() { case $1 in few) echo 1e-6 ;; tenth) echo "10 %" ;; half) echo "50 %" ;; *) echo "100 %" ;; esac; }

# WORK MIB TYPE   of the file "times"
dense_row() {
    awk -v work="$1" -v mib="$2" -v type="$3" '
    $2 != "-" && (!($1 in least) || $2 + 0 < least[$1]) {least[$1] = $2 + 0}
    END {
        n = mib * 1048576 / (type == "uint8" ? 1 : type == "float32" ? 4 : 2)
        ours = least["npudiff"]
        printf "%-28s %.3f s of processor time, %.2f ns/element; h5diff %.3f s: %.1f x; read %.3f s: %.1f x", work, ours,
            ours / n * 1e9, least["h5diff"], least["h5diff"] / ours, least["read"] / 2, ours / (least["read"] / 2)
        printf "; cmp %.3f s: %.1f x\n", least["cmp"], least["cmp"] / ours
    }' times
}

# From 128 MiB on, h5diff 1.10 reads a dataset in strips and inflates a chunk several times. The bars are held to h5diff at
# its best, an eighth of the data that it reads whole; the time for all of it stands below.
bench_deflate() {
    "$build/tools/bench/make_captures" float32 $((mib * 262144)) 1 4 1 float:0 float_few:1e-6 >made_float &
    make_captures uint8 "$mib" 4 codes:0 codes_few:1e-6
    make_captures uint8 $((mib / 8)) 4 codes8:0 codes8_few:1e-6
    make_captures float32 $((mib / 8)) 4 float8:0 float8_few:1e-6
    wait $!
    cat made_float >>made
    cp codes codes_same
    cp codes8 codes8_same
    head -c $((mib * 1048576)) /dev/zero >plain
    cp plain plain2
    sync
    limit=$(read_limit plain plain2)
    for type in codes float; do
        [ $type = codes ] && asked=5 || asked=3
        name="$type, deflate $(packed $type) : 1, 1e-6 differ"
        files=$(read_limit $type ${type}_few)
        ours=$(npudiff $type ${type}_few)
        expect npudiff "$(npudiff_found)" "$(planted ${type}_few)"
        theirs=$(h5diff_seconds 3 ${type}8 ${type}8_few | scaled 8)
        expect h5diff "$(h5diff_found)" "$(planted ${type}8_few)"
        row "$name (8 x 1/8)" "$ours" h5diff "$theirs" ">= $asked" "$limit" "$files"
        row "$name" "$ours" h5diff "$(h5diff_seconds 1 $type ${type}_few)" "" "$limit" "$files"
        expect h5diff "$(h5diff_found)" "$(planted ${type}_few)"
    done
    theirs=$(h5diff_seconds 3 codes8 codes8_same | scaled 8)
    expect h5diff "$(h5diff_found)" 0
    for option in "" --verify-digests; do
        # shellcheck disable=SC2086
        ours=$(npudiff $option codes codes_same)
        expect npudiff "$(npudiff_found)" 0
        row "codes, deflate, equal${option:+, $option} (8 x 1/8)" "$ours" h5diff "$theirs" ">= 50" "$limit" \
            "$(read_limit codes codes_same)"
    done
}

# Digests alone: 8 captures of 1000 edges, of 1 KiB and of 256 KiB.
bench_edges() {
    for size in 1 256; do
        files=$(for i in 0 1 2 3 4 5 6 7; do echo e$size.$i; done)
        # shellcheck disable=SC2046
        "$build/tools/bench/make_captures" uint8 $((size * 1024)) 1000 0 1 $(for file in $files; do echo $file:0; done) >/dev/null
        # shellcheck disable=SC2086
        ours=$(npudiff $files)
        [ $size = 1 ] && small=$ours
    done
    row "8 x 1000 edges of 1 KiB, equal" "$small" "" - "" -
    row "8 x 1000 edges of 256 KiB, equal" "$ours" small "$small" "<= 1.25" -
}

header
for section in ${*:-float half codes dense deflate edges}; do
    : >made
    case $section in
    float | half | codes | dense | deflate | edges) "bench_$section" ;;
    *) echo "bench: there is no section '$section'" >&2; exit 2 ;;
    esac
    rm -rf "${work:?}"/*
done
exit $wrong
