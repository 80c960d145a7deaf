# Alignment of some layers, of chipsets by name, and the curve.
model=$GOLDEN/models/cnn.w8a8.onnx float=$GOLDEN/models/cnn.float.onnx
attention=$GOLDEN/models/random-attention
python -c "import numpy, sys; d = numpy.load(sys.argv[1]); numpy.savez('few.npz', **{k: d[k][:20] for k in d.files})" "$GOLDEN/models/digits-test.npz"
run align "$model" --chipsets gen1,SM8750 -q
run align "$model" --arithmetic htp-v69:2.48 --chipsets GEN5 -q
# The layer's operands keep their scales, and so does everything that other layers rest on.
run align "$model" --layers 'stem/*,logits' -o some.onnx
"$NPUDIFF" encodings list "$model" --json >before.json
"$NPUDIFF" encodings list some.onnx --json >after.json
python - <<'END'
import json
before, after = ({t["tensor"]: (t["scale"], t["zero_point"]) for t in json.load(open(f"{name}.json"))["encodings"]} for name in ("before", "after"))
print("tensors with another quantisation:", [name for name in before if before[name] != after[name]])
END
# As many layers as the budget allows, those with the largest effect first.
run align "$model" --float "$float" -p digits=few.npz --layers auto --budget 0.5
run align $attention.w8a8.onnx --float $attention.float.onnx -p uniform:4 --layers auto --budget 0.2 --json -q >/dev/null
run align $attention.w8a8.onnx --float $attention.float.onnx -p uniform:4 --layers auto --budget 0.001 -o none.onnx
"$NPUDIFF" align $attention.w8a8.onnx --float $attention.float.onnx -p uniform:4 --layers auto --budget 0.14 --json >curve.json || true
python - <<'END'
import json
document = json.load(open("curve.json"))
points = document["curve"]["points"]
print(document["result"], "layers:", [p["layers"] for p in points])
effects = [p["effect_db"] for p in points[1:]]
numbers = [float(e) for e in effects if e is not None]
assert numbers == sorted(numbers), numbers # the largest effect has the fewest decibels
assert points[0]["loss_db"] == 0 and points[0]["different"] > points[-1]["different"]
END
# Options that do not fit.
run align "$model" --chipsets gen3,gen5
run align "$model" --chipsets gen1,gen9
run align "$model" --layers auto
run align "$model" --layers nothing
run align "$model" --layers pool
ls
