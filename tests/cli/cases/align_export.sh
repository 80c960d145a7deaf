# Aligned scales for other quantisers. tools/studies/overrides makes ONNX Runtime's use them.
check_overrides() {
    "$NPUDIFF" encodings list "$1" --json >list.json
    python - "$2" <<'END'
import json, sys
listed = {e["tensor"]: e for e in json.load(open("list.json"))["encodings"]}
overrides = json.load(open(sys.argv[1]))
names = {"uint8": "QUInt8", "int8": "QInt8", "uint16": "QUInt16"}
for name, items in overrides.items():
    known = listed[name]
    assert [i["scale"] for i in items] == known["scale"] and [i["zero_point"] for i in items] == known["zero_point"], name
    assert {i["quant_type"] for i in items} == {names[known["type"]]}, name
    assert all(("axis" in i) == (len(items) > 1) for i in items), name
missing = {listed[name]["type"] for name in listed.keys() - overrides.keys()}
print(f"{len(overrides)} of {len(listed)} tensors; the others are of {sorted(missing)}")
print("per channel:", sorted((name, items[0]["axis"], len(items)) for name, items in overrides.items() if len(items) > 1))
END
}
float=$GOLDEN/models/cnn.float.onnx
run align "$GOLDEN/models/cnn.w8a16.onnx" --float "$float" -o aligned.onnx --encodings enc.json --overrides over.json
run encodings diff aligned.onnx enc.json
check_overrides aligned.onnx over.json
# From the float model and the encodings alone: the same scales.
run encodings apply "$float" enc.json -o applied.onnx
run encodings diff aligned.onnx applied.onnx
# Scales per channel, int8 weights.
run align "$GOLDEN/models/random-residual.u8.onnx" -o residual.onnx --encodings enc2.json --overrides over2.json -q
run encodings diff residual.onnx enc2.json
check_overrides residual.onnx over2.json
# What does not fit.
run align "$GOLDEN/models/cnn.w8a8.onnx" --overrides new.json
run align "$GOLDEN/models/cnn.w8a8.onnx" -o new.onnx --encodings enc.json
run align "$GOLDEN/models/cnn.w8a8.onnx" -o new.onnx --overrides missing/over.json
ls
