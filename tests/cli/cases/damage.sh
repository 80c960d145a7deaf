# A capture that verify calls damaged is not compared and not explained: not where values are read, and not where a table or
# a digest is wrong, also when everything else is equal. A tensor that is not read, as its digest is equal, is not checked, which
# --verify-digests changes.
cat > damage.py <<'PY'
import sys, h5py, numpy as np
path, what = sys.argv[1:]
with h5py.File(path, "r+") as file:
    data = file[what][...]
    data.view(np.uint8).reshape(-1)[0] ^= 1
    file[what][...] = data
PY
capture cnn.w8a8 -d cpu -p ramp -o cpu.h5 --deflate 0
capture cnn.w8a8 -d emu:floor -p ramp -o floor.h5 --deflate 0
cp cpu.h5 equal.h5
for what in probes/ramp/outputs/logits probes/ramp/digests/logits edges/op_types probes/ramp/latency_us; do
    echo "--- $what"
    cp floor.h5 bad.h5
    python damage.py bad.h5 $what
    run compare cpu.h5 bad.h5 -q
    code_of explain --quantised "$GOLDEN/models/cnn.w8a8.onnx" bad.h5 cpu.h5
    code_of verify bad.h5
    cp cpu.h5 equal.h5
    python damage.py equal.h5 $what
    run compare cpu.h5 equal.h5 -q
done
cp cpu.h5 equal.h5
python damage.py equal.h5 probes/ramp/outputs/logits
run compare cpu.h5 equal.h5 -q --verify-digests
cp floor.h5 bad.h5
python damage.py bad.h5 probes/ramp/outputs/logits
code_of compare cpu.h5 bad.h5 --trust-digests
run compare cpu.h5 bad.h5 --trust-digests --verify-digests
# Commands that state what a table, an attribute or an input says check it, too.
for what in nodes/provider probes/ramp/latency_us probes/ramp/input_digests/image probes/ramp/inputs/image; do
    echo "--- $what"
    cp cpu.h5 bad.h5
    python damage.py bad.h5 $what
    code_of placement "$GOLDEN/models/cnn.w8a8.onnx" bad.h5
    code_of latency bad.h5
    code_of golden bundle bad.h5 -o bundle.json
    code_of info bad.h5
    code_of export aihub bad.h5 -p ramp --inputs -o inputs.h5
    rm -f bundle.json inputs.h5
done
run export aihub bad.h5 -p ramp --inputs -o inputs.h5
