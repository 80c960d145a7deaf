# A comparison cut into parts and merged is the comparison, to the byte; NPUDIFF_CPU, threads and memory change nothing.
capture cnn.float -d cpu -d 'cpu?optimisation=all' -p uniform:12 -p zeros -o floats
captures="floats/cpu.h5 floats/cpu-optimisation-all.h5"
options="--json --ulp-in float16 --worst 3"
"$NPUDIFF" compare $captures $options >whole.json || echo "whole: exit $?"
for cut in tensors samples; do
    merge=()
    for part in 1 2 3 4; do
        "$NPUDIFF" compare $captures $options --cut $cut --part $part/4 >$cut-$part.json
        merge+=(--merge $cut-$part.json)
    done
    "$NPUDIFF" compare $captures $options "${merge[@]}" >merged.json || echo "merged $cut: exit $?"
    cmp whole.json merged.json
done
for cap in scalar avx2 avx512; do
    NPUDIFF_CPU=$cap "$NPUDIFF" compare $captures $options --threads 3 --memory 16 >other.json || echo "$cap: exit $?"
    cmp whole.json other.json
done
run compare $captures -q --merge samples-1.json --merge samples-2.json
run compare $captures -q --merge missing.json
NPUDIFF_CPU=sse9 run compare $captures -q
run compare $captures -q --matrix share:nothing
