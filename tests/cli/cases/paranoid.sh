# verify --paranoid: each check finds what is wrong for it. Digests are not made to fit here, so that 'values' or 'content'
# is wrong, too; what counts is the check that is named.
cat >damage.py <<'PY'
import sys, h5py, numpy as np
path, what = sys.argv[1:]
if what == "places": # the second dataset is where the first is
    with h5py.File(path, "r") as file:
        a, b = (file[f"probes/ramp/outputs/{n}"].id.get_offset() for n in sorted(file["probes/ramp/outputs"])[:2])
    data = open(path, "rb").read()
    assert data.count(b.to_bytes(8, "little")) == 1
    open(path, "wb").write(data.replace(b.to_bytes(8, "little"), a.to_bytes(8, "little")))
    sys.exit()
with h5py.File(path, "r+") as file:
    def put(name, value, at=0):
        data = file[name][...]
        data.reshape(-1)[at] = value
        file[name][...] = data
    def scale(value): # of the first tensor, in both places
        put("edges/scale", value)
        attrs = file["probes/ramp/outputs/image"].attrs
        attrs.modify("scale", np.array(value, attrs["scale"].dtype).reshape(attrs["scale"].shape))
    if what == "values":
        put("probes/ramp/outputs/logits", file["probes/ramp/outputs/logits"][...].reshape(-1)[0] ^ 1)
    elif what == "content":
        put("nodes/op_type", b"Sum")
    elif what == "scales":
        scale(-1)
    elif what == "counts":
        put("probes/ramp/latency_us", -5)
    elif what == "tensors":
        scale(0.5)
PY
cat >told.py <<'PY'
import json, sys
for capture in json.load(sys.stdin)["captures"]:
    for check in capture["checks"]:
        if check["verdict"] != "ok":
            print(f'{check["check"]}: {check["verdict"]}, {check["wrong"]} of {check["looked_at"]}: {check["problem"]}')
PY
m=$GOLDEN/models/cnn.w8a8.onnx
capture cnn.w8a8 -d exact -p ramp -o exact.h5 --deflate 0
capture cnn.w8a8 -d emu:floor -p ramp -o floor.h5 --deflate 0
run verify exact.h5 --paranoid --model "$m"
run verify exact.h5 floor.h5 --paranoid
for what in values content places scales counts tensors; do
    echo "--- $what"
    cp exact.h5 bad.h5
    python damage.py bad.h5 $what
    code_of verify bad.h5 --paranoid --model "$m"
    "$NPUDIFF" verify bad.h5 --paranoid --model "$m" --json | python told.py
done
echo "--- a capture that calls itself another device's"
cp floor.h5 bad.h5
python -c '
import h5py, numpy as np
with h5py.File("bad.h5", "r+") as file:
    file["device"].attrs.create("kind", np.array(b"exact", h5py.string_dtype("utf-8", 5)))'
"$NPUDIFF" verify bad.h5 --paranoid --model "$m" --json | python told.py
run verify exact.h5 --paranoid --model "$GOLDEN/models/mul.u8.onnx"
run verify exact.h5 --model "$m"
