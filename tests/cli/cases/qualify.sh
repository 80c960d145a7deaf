# A campaign from nothing, again, with another policy, past a loosening's end, with a device that fails.
ln -s "$GOLDEN/models" models
cat >one.yaml <<END
models:
  - name: cnn
    quantised: models/cnn.w8a8.onnx
    float: models/cnn.float.onnx
    probes: [digits=models/digits-test.npz]
devices: [exact, 'emu:floor']
tensors: outputs
output: out
policy:
  - gate: finalize
  - gate: bit-equal-to
    devices: exact
  - gate: lsb
    max: 0
  - gate: lsb
    max: 40
    devices: emu:*
    reason: floor is what this device does
    owner: somebody
    until: 2026-06-30
  - gate: accuracy-drop
    reference: float
    margin: 0.05
END
export SOURCE_DATE_EPOCH=1767225600
run qualify one.yaml
run qualify one.yaml -q
cut -d , -f 1-8 out/result.csv
run qualify one.yaml --suggest
"$NPUDIFF" qualify one.yaml --suggest >suggested.txt
"$NPUDIFF" qualify one.yaml --suggest --json | python -c '
import json, sys
told = json.load(sys.stdin)
print(told["kind"], told["format"], told["campaign"], told["left_out"], told["yaml"] == open("suggested.txt").read())
for gate in told["policy"]:
    print(gate)'
SOURCE_DATE_EPOCH=1790000000 code_of qualify one.yaml
sed -n '/failure/p' out/junit.xml
rm out/captures/cnn/exact.h5
run qualify one.yaml -q
"$NPUDIFF" qualify one.yaml -j 2 2>&1 >/dev/null
sed 's/margin: 0.05/margin: 0.001/' one.yaml >two.yaml
code_of qualify two.yaml
sed -n '/skipped/p' out/junit.xml
ls out out/captures/cnn
# Without a float model, and with a gate that fails beside one that is inconclusive.
cat >three.yaml <<END
models: [{name: cnn, quantised: models/cnn.w8a8.onnx, probes: [digits=models/digits-test.npz]}]
devices: [exact, 'emu:floor']
tensors: outputs
output: three
policy: [{gate: lsb, max: 0}, {gate: accuracy-drop, margin: 0.001}]
END
run qualify three.yaml -q
sed -n '/VERDICT/,$p' three/result.txt
