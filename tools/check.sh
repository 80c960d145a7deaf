#!/bin/sh
# Checks of the code itself, beside its tests. Usage: tools/check.sh [NAME ...]   default: all of them
#   layers     no object of a wing needs a later one, no files of a wing need each other; commands include public headers only
#   headers    every public header compiles alone, in C and C++
#   symbols    the library exports what the public headers declare, and breaks no program (tools/abi)
#   agent      the agent, also that for 64-bit Arm Linux, needs nothing but the C library
#   android    the agent compiles for Android and calls nothing that Android's C library has not
#   clang      everything compiles without a warning under clang, with the sanitizers that the next check needs
#   sanitize   unit tests under the address and undefined-behaviour sanitizers, in the build of 'clang'
#   threads    unit tests and the commands under the thread sanitizer
#   valgrind   unit tests under valgrind
#   neon       the kernels of aarch64 match their definition, under qemu
#   arm64      the library compiles for 64-bit Arm Linux, and its twins give there, under qemu, the bits of x86-64
#   locale     unit tests in a locale with decimal commas
#   format     clang-format changes nothing
# Every check runs, also after one that failed; the last line says which failed. CI runs 'ci': layers headers symbols clang
# sanitize, for which tools/setup --checks installs all. What the others need it does not install (valgrind, clang-format,
# gcc-aarch64-linux-gnu, qemu-user, musl-tools): such a check says so and fails.
set -eu
cd "$(dirname "$0")/.."

need() { command -v "$1" >/dev/null || { echo "check: '$1' is needed" >&2; exit 2; }; }

# No object of a wing needs a later one, and no two files of a wing need each other (tools/layers, by the symbols of objects). The
# commands include public headers only.
check_layers() {
    tools/build >/dev/null
    tools/layers && bad=0 || bad=1
    grep -rn --include='*.[ch]' '#include "' src/cli | grep -v '"cli/\|"npudiff/' && bad=1
    return $bad
}

check_headers() {
    need g++
    for header in $(find include lab/include -name '*.h' | sort); do
        name=${header#*include/}
        echo "#include \"$name\"" | gcc -std=c17 -Wall -Wextra -Werror -Iinclude -Ilab/include -fsyntax-only -xc -
        echo "#include \"$name\"" | g++ -std=c++17 -Wall -Wextra -Werror -Iinclude -Ilab/include -fsyntax-only -xc++ -
    done
}

check_symbols() {
    tools/build >/dev/null
    tools/abi
}

check_agent() {
    need aarch64-linux-gnu-gcc
    tools/build >/dev/null
    tools/build_agent aarch64-linux -C build && tools/check_agent build/src/devices/agent/npudiff-agent build/agents/aarch64-linux/npudiff-agent
}

check_android() {
    need musl-gcc
    need clang
    tools/check_android
}

# A build of its own with these meson options, unless it is there.
configure() { # folder, options...
    folder=$1
    shift
    [ -f "$folder/build.ninja" ] || meson setup "$folder" -Dtests=enabled "$@" >/dev/null
}

# The unit tests of a build under the wrapper, if any.
run_suite() { # folder, wrapper, options...
    folder=$1
    wrapper=$2
    shift 2
    configure "$folder" "$@"
    # It builds what these tests need.
    # shellcheck disable=SC2086
    meson test -C "$folder" --print-errorlogs --timeout-multiplier 10 ${wrapper:+--wrap "$wrapper"} --suite unit ${suites:-}
}

# One build for two checks: the sanitizers change nothing of what clang warns of, and it warns before it optimises. -g1: a
# report of the sanitizers has line numbers.
configure_clang() {
    need clang
    CC=clang configure build-clang -Dwerror=true -Ddebug=false -Dc_args=-g1 -Doptimization=0 -Db_sanitize=address,undefined \
        -Db_lundef=false
}

check_clang() {
    configure_clang
    ninja -C build-clang --quiet -k 0
}

check_sanitize() {
    configure_clang
    run_suite build-clang ""
}
# Without the tests that load ONNX Runtime: its own threads are not instrumented.
check_threads() {
    unit_threads && command_threads
}

unit_threads() {
    suites="parallel twin_model store capture capture_write view chunk spool compare compare_engine compare_fleet report" run_suite build-threads "" -Db_sanitize=thread -Db_lundef=false
}
# What a user does, on devices that npudiff computes by itself: 0 and 1 are answers.
command_threads() {
    ninja -C build-threads --quiet
    out=$(mktemp -d)
    model=golden/models/random-residual.u8.onnx
    status=0
    while read -r command; do
        # shellcheck disable=SC2086
        TSAN_OPTIONS=exitcode=66 build-threads/src/cli/npudiff $command >"$out/said" 2>&1 || [ $? = 1 ] || { cat "$out/said"; status=1; }
        grep -q ThreadSanitizer "$out/said" && { cat "$out/said"; status=1; }
    done <<EOF
capture $model -d exact -d emu:floor -p uniform:8 -o $out/c
compare $out/c/exact.h5 $out/c/emu-floor.h5 --threads 4
explain --quantised $model $out/c/exact.h5 $out/c/emu-floor.h5 --threads 4
verify $out/c/exact.h5 $out/c/emu-floor.h5
report $out/c/exact.h5 $out/c/emu-floor.h5 --quantised $model --threads 4 -o $out/report.html
lint $model
align $model -o $out/aligned.onnx
golden add $out/store $out/c/exact.h5 --note n --by n
golden check $out/store $out/c/emu-floor.h5
triage $out/c/emu-floor.h5 --against $out/store
capture $model -d twin:gen3 -p uniform:8 -o $out/twin.h5
run $model -d exact -d emu:floor -p uniform:8 -o $out/run
verify --paranoid --model $model $out/c/exact.h5
init $model -d exact -d emu:floor -p uniform:4 -o $out/campaign.yaml
qualify $out/campaign.yaml -o $out/results
EOF
    rm -rf "$out"
    return $status
}
# Without the tests that load ONNX Runtime, and the one that feeds libhdf5 damaged files: what valgrind says there is of
# the dynamic loader and of libhdf5.
check_valgrind() {
    need valgrind
    suites="base parallel kernels exact_sum log_histogram tensor model probe probe_files chunk spool store capture capture_write view peek
        assemble plan device compare compare_files compare_signal compare_structure compare_types
        compare_state compare_fleet compare_parts report report_json report_text exact_graph exact_rounding exact_linear
        exact_linear_elements exact_ops"
    run_suite build-valgrind "valgrind --quiet --leak-check=full --child-silent-after-fork=yes --error-exitcode=9"
}

# With the flags of src/compare/meson.build.
check_neon() {
    need aarch64-linux-gnu-gcc
    need qemu-aarch64
    out=$(mktemp -d)
    flags="-std=c17 -D_GNU_SOURCE -ffp-contract=off -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude -Isrc -Itests"
    kernels="src/compare/metrics/kernels/kernels_template.c -O3 -c"
    # shellcheck disable=SC2086
    aarch64-linux-gnu-gcc $flags $kernels -DND_KERNELS_ISA=neon -o "$out/neon.o" &&
        aarch64-linux-gnu-gcc $flags $kernels -DND_KERNELS_ISA=scalar -DND_VECTOR_BYTES=8 \
            -fno-tree-vectorize -fno-tree-slp-vectorize -o "$out/scalar.o" &&
        aarch64-linux-gnu-gcc $flags '-DND_VERSION=""' -O2 -static tests/cross/kernels.c src/compare/metrics/kernels/kernels.c \
            src/core/error.c src/core/text/strbuf.c src/core/memory.c "$out/neon.o" "$out/scalar.o" -lm -o "$out/kernels" &&
        qemu-aarch64 "$out/kernels" && status=0 || status=1
    rm -rf "$out"
    return $status
}

# The Python and the libraries are Debian's for that machine; the command, with which the twin is held against captures, is ours
# for this one, as what an emulated program starts is not emulated.
check_arm64() {
    need aarch64-linux-gnu-gcc
    need qemu-aarch64
    tools/build >/dev/null
    root=$(tools/arm64_root whole)
    configure build-arm64 -Dtests=disabled --buildtype=release --cross-file cross/aarch64-linux.ini --cross-file "$root.ini"
    library=src/libnpudiff.so.$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
    ninja -C build-arm64 --quiet "$library"
    libraries=$root/usr/lib/aarch64-linux-gnu
    NPUDIFF=$PWD/build/src/cli/npudiff NPUDIFF_LIBRARY=$PWD/build-arm64/$library PYTHONDONTWRITEBYTECODE=1 \
        qemu-aarch64 -cpu neoverse-n1 -L "$root" -E "LD_LIBRARY_PATH=$libraries/blas:$libraries/lapack" \
        "$root"/usr/bin/python3 tests/library/test_python_twin.py
}

check_locale() {
    locale -a | grep -qi '^de_DE.utf-\?8$' || { echo "check: the locale de_DE.UTF-8 is needed" >&2; exit 2; }
    tools/build >/dev/null
    LC_ALL=de_DE.UTF-8 meson test -C build --no-rebuild --suite unit --print-errorlogs
}
check_format() {
    need clang-format
    git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
}

all="layers headers symbols agent android clang sanitize threads valgrind neon arm64 locale format"
if [ "${1:-}" = --one ]; then
    "check_$2"
    exit
fi
names=${*:-$all}
[ "$names" != ci ] || names="layers headers symbols clang sanitize"
for name in $names; do
    case " $all " in *" $name "*) ;; *) echo "check: '$name' is none of $all" >&2; exit 2 ;; esac
done
failed=""
for name in $names; do
    echo "check: $name"
    since=$(date +%s)
    # Each in a shell of its own, which ends where one of its commands fails.
    sh tools/check.sh --one "$name" || failed="$failed $name"
    echo "check: $name took $(($(date +%s) - since)) s"
done
if [ -n "$failed" ]; then
    echo "check: FAILED:$failed"
    exit 1
fi
echo "check: all fine: $names"
