# Documents of the kinds that no other case prints; run.py validates them, and that every kind was seen.
kind_of() {
    local code=0
    "$NPUDIFF" "$@" --json >document.json 2>/dev/null || code=$?
    echo "$1 $2: exit $code, $(python -c 'import json; print(json.load(open("document.json"))["kind"])')"
}
model=$GOLDEN/models/mul.u8.onnx
capture mul.u8 -d exact -d emu:floor -p ramp -o captures
a=captures/exact.h5 b=captures/emu-floor.h5
kind_of compare --config $a
kind_of compare --config $a $b
kind_of golden add store $a
kind_of golden add store $b
kind_of golden list store
ids=$("$NPUDIFF" golden list store --json | python -c 'import json, sys; print(*(e["id"] for e in json.load(sys.stdin)["entries"]))')
kind_of golden diff store $ids
kind_of golden prune store --dry-run
kind_of placement "$model" $a $b
kind_of export aihub $a -o dataset.h5
kind_of export model-explorer "$model" $a $b -o overlays
kind_of import --formats
python -c 'import numpy; numpy.savez("outputs.npz", product=numpy.zeros((1, 256), "uint8"))'
kind_of import numpy outputs.npz --model "$model" -o imported.h5
one=$GOLDEN/encodings/cnn.per-channel.1.0.0.encodings other=$GOLDEN/encodings/cnn.per-channel.0.6.1.encodings
kind_of encodings list $one
kind_of encodings diff $one $other
kind_of encodings check $one $a
kind_of reduce "$model" -d cpu
for name in a b; do
    echo '{"npudiff_datasheet": 1, "device": {}, "sections": {}}' >$name.json
done
kind_of fingerprint --diff a.json b.json
kind_of fingerprint --campaign sheets -d exact --section quantise
kind_of runtimes check --files-only
cat >one.yaml <<YAML
models: [{name: mul, quantised: '$model', probes: [ramp]}]
devices: [exact]
output: out
policy: [{gate: finalize}]
YAML
kind_of qualify one.yaml
