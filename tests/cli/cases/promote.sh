# The layers that more bits help: text, all proposals, JSON, files; a budget; nothing that helps; what is refused. A device
# with known arithmetic: the numbers do not depend on a runtime.
models=$GOLDEN/models
few() { python -c "
import numpy as np
digits = np.load('$models/digits-test.npz')
np.savez('few.npz', **{k: digits[k][:20] for k in digits.files})"; }
few
promote() { run promote "$@" --float "$models/cnn.float.onnx" -p digits=few.npz -q; }
"$NPUDIFF" promote "$models/cnn.w8a8.onnx" --float "$models/cnn.float.onnx" -d exact -p digits=few.npz --layers 8 -o promoted.onnx \
    --overrides over.json --encodings enc.json 2>/dev/null
"$NPUDIFF" promote "$models/cnn.w8a8.onnx" --float "$models/cnn.float.onnx" -d exact -p digits=few.npz --layers 2 -v 2>/dev/null
"$NPUDIFF" promote "$models/cnn.w8a8.onnx" --float "$models/cnn.float.onnx" -d exact -p digits=few.npz --json >document.json 2>/dev/null
python - <<'END'
import json
document = json.load(open("document.json"))
(device,) = document["devices"]
print(document["result"], document["kept"], device["right_before"], device["right_after"], device["labelled"])
assert document["output"] is None
kept = [layer for layer in document["layers"] if layer["fate"] == "kept"]
assert kept == document["layers"][:len(kept)] and all(layer["measured_db"] >= 0.05 for layer in kept)
assert abs(sum(layer["measured_db"] for layer in kept) - (device["after_db"] - device["before_db"])) < 1e-9
overrides, encodings = json.load(open("over.json")), json.load(open("enc.json"))
print({name: items[0]["convert"] for name, items in overrides.items() if "convert" in items[0]})
print(sorted(name for name, items in overrides.items() if items[0]["quant_type"] == "QUInt16"),
      sorted((name, len(items)) for name, items in overrides.items() if len(items) > 1))
print(sorted(e["name"] for e in encodings["activation_encodings"] if e["bw"] == 16))
END
ls
# The report: the model before and after, of promote and of align.
"$NPUDIFF" align "$models/cnn.w8a8.onnx" --float "$models/cnn.float.onnx" -p digits=few.npz --json >aligned.json 2>/dev/null || true
for name in document aligned; do
    run report "$name.json" -o "$name.html" -q
    grep -o -E '<p class="word">[^<]*|<caption>[^<]*|<th scope="row"><bdi[^<]*<|<th scope="col"[^<]*' "$name.html" | sed 's/.*>//' | head -20 | tr '\n' '|'
    echo
done
run report document.json aligned.json -o both.html
# A model in which nothing can gain, and a budget that nothing fits: nothing is written.
identity() { "$NPUDIFF" promote "$@" --float "$models/identity.float.onnx" -d exact -p uniform -q 2>/dev/null || echo "exit $?"; }
identity "$models/identity.u8.onnx" -o wide.onnx
run promote wide.onnx --float "$models/identity.float.onnx" -d exact -p uniform -o none.onnx -q
"$NPUDIFF" promote wide.onnx --float "$models/identity.float.onnx" -d exact -p uniform 2>/dev/null || true
"$NPUDIFF" promote "$models/cnn.w8a8.onnx" --float "$models/cnn.float.onnx" -d exact -p digits=few.npz -o none.onnx --budget 0.000001 \
    2>/dev/null || echo "exit $?"
[ -e none.onnx ] || echo 'none.onnx was not written'
# A float model, another float model, a quantised one as the float model; a device that fails.
promote "$models/cnn.float.onnx" -d exact
run promote "$models/cnn.w8a8.onnx" --float "$models/mul.float.onnx" -d exact -p uniform -q
run promote "$models/cnn.w8a8.onnx" --float "$models/cnn.w8a16.onnx" -d exact -p uniform -q
run promote "$models/vit.w8a8.onnx" --float "$models/cnn.float.onnx" -d exact -p uniform -q
promote "$models/cnn.w8a8.onnx" -d emu:stale@nothing
mkdir -p runtimes/mine
echo 'this is no library' >runtimes/mine/text.so
cat >runtimes/mine/runtime.json <<END
{"onnxruntime": "0", "onnxruntime_qnn": "0", "ort_library": "text.so", "provider_library": "text.so",
 "backend_library": "text.so"}
END
export NPUDIFF_RUNTIMES=$PWD/runtimes
promote "$models/cnn.w8a8.onnx" -d cpu@mine
# What is missing, and what does not fit.
run promote "$models/cnn.w8a8.onnx" -d exact -p uniform
run promote "$models/cnn.w8a8.onnx" --float "$models/cnn.float.onnx" -p uniform
run promote "$models/cnn.w8a8.onnx" --float "$models/cnn.float.onnx" -d exact
promote "$models/cnn.w8a8.onnx" -d exact --overrides over2.json
promote "$models/cnn.w8a8.onnx" -d exact -o promoted.onnx
promote "$models/cnn.w8a8.onnx" -d exact --budget 0
promote missing.onnx -d exact
