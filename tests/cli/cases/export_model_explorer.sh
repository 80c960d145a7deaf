# Node data for Model Explorer: the values of compare and explain, by nodes that the model has.
model=$GOLDEN/models/cnn.w8a8.onnx
capture cnn.w8a8 -d exact -d emu:htp-v73 -p uniform:4 -o captures
a=captures/exact.h5 b=captures/emu-htp-v73.h5
run export model-explorer "$model" $a $b -o overlays
ls overlays
"$NPUDIFF" compare $a $b --json >compare.json || true
"$NPUDIFF" explain --quantised "$model" $a $b --json >explain.json || true
"$NPUDIFF" placement "$model" $a --json >placement.json
python - <<'PYTHON'
import json

def read(name):
    return json.load(open(name))

nodes = {node["name"]: node["op_type"] for node in read("placement.json")["devices"][0]["nodes"]}
pairs = {tensor["name"]: tensor["pairs"][0] for tensor in read("compare.json")["tensors"]}
layers = {layer["name"]: layer for layer in read("explain.json")["devices"][1]["layers"]}
words = {"follows": "healthy"}
for measure, rows, member in (("verdict", pairs, "verdict"), ("share", pairs, "share"), ("max-lsb", pairs, "max_lsb"),
                              ("layer", layers, "state"), ("introduced", layers, "introduced_mismatch"),
                              ("effect", layers, "effect")):
    data = read(f"overlays/emu-htp-v73.{measure}.json")
    assert list(data) == ["digits-cnn"], list(data) # the name of the graph
    results = data["digits-cnn"]["results"]
    assert set(results) <= set(nodes), set(results) - set(nodes)
    n = 0
    for name, row in rows.items():
        value = row[member]
        at = results.get(f"{name}_QuantizeLinear")
        assert (at is None) == (value is None), name
        if at is not None:
            assert at["value"] == words.get(value, value), (name, at, value)
            n += 1
    colours = [band["bgColor"] for band in data["digits-cnn"]["thresholds"]] or sorted({r["bgColor"] for r in results.values()})
    print(measure, n, "tensors,", len(results), "nodes:", data["digits-cnn"]["name"], colours)
print(*sorted({nodes[name] for name in results}))
PYTHON
# What was printed gives the same files as the captures; run's document has both.
"$NPUDIFF" export model-explorer "$model" compare.json explain.json -o again --json | python -c 'import json, sys; print(json.load(sys.stdin)["graph"])'
diff -r overlays again
"$NPUDIFF" run "$model" -d exact -d emu:htp-v73 -p uniform:4 -o captures2 --json >run.json 2>/dev/null || true
run export model-explorer "$model" run.json -o third -q
diff overlays/emu-htp-v73.share.json third
# A node without a name has the id that Model Explorer gives it: its name becomes the text of its documentation.
capture mul.u8 -d exact -d emu:floor -p ramp -o mul
"$NPUDIFF" compare mul/exact.h5 mul/emu-floor.h5 --json >mul.json || true
python - "$GOLDEN/models/mul.u8.onnx" <<'PYTHON'
import pathlib, sys

data = pathlib.Path(sys.argv[1]).read_bytes()
assert data.count(b'\x1a\x03mul"\x03Mul') == 1
pathlib.Path("unnamed.onnx").write_bytes(data.replace(b'\x1a\x03mul"\x03Mul', b'\x32\x03mul"\x03Mul'))
PYTHON
run export model-explorer unnamed.onnx mul.json -o unnamed
grep -o '"[^"]*": {' unnamed/emu-floor.verdict.json
# Files that exist stay; other documents and models are refused.
run export model-explorer "$model" compare.json -o overlays
run export model-explorer "$model" compare.json -o overlays -f
run export model-explorer "$model" placement.json -o none
run export model-explorer "$GOLDEN/models/mul.u8.onnx" compare.json -o none
run export model-explorer "$model" -o none
run export model-explorer "$model" $a -o none --inputs
run export aihub $a $b -o none
[ ! -e none ]
