# Aligned models by both arithmetics (emulated), what the price is, and what cannot be aligned.
model=$GOLDEN/models/cnn.w8a8.onnx float=$GOLDEN/models/cnn.float.onnx
python -c "import numpy, sys; d = numpy.load(sys.argv[1]); numpy.savez('few.npz', **{k: d[k][:20] for k in d.files})" "$GOLDEN/models/digits-test.npz"
run align "$model" --float "$float" -p digits=few.npz -o aligned.onnx
run align "$model" --float "$float" -p digits=few.npz --verify emu:htp-v69 --verify emu:htp-v73 -o aligned.onnx
"$NPUDIFF" align "$model" --float "$float" -p digits=few.npz --verify emu:htp-v69 --verify emu:htp-v73 -o aligned.onnx -f -v 2>/dev/null
# The devices say what they do: a third arithmetic refutes the proofs.
run align "$model" -p digits=few.npz --verify emu:htp-v69 --verify emu:half-up -q
# Without --float; and a layer whose arithmetic is not known.
run align "$GOLDEN/models/random-residual.u8.onnx" -o residual.onnx
run align "$GOLDEN/models/random-attention.w8a8.onnx" --float "$GOLDEN/models/random-attention.float.onnx" -p uniform:4 --budget 0.001 -o attention.onnx
"$NPUDIFF" align "$model" --json -o json.onnx >document.json
python - <<'END'
import json
document = json.load(open("document.json"))
print({k: document[k] for k in ("kind", "result", "arithmetics", "counts", "accuracy_cost", "verification")})
print([(l["tensor"], l["state"], l["scaling"] and l["scaling"]["exponent"]) for l in document["layers"]])
END
ls
# What cannot be aligned, and options that do not fit.
run align "$float" -o out.onnx
run align missing.onnx
run align "$model" --verify cpu -p uniform
run align "$model" --verify cpu --verify exact
run align "$model" --budget 1
run align "$model" --arithmetic htp-v69 --arithmetic float
run align "$model" --arithmetic htp-v69
run align "$model" --float "$GOLDEN/models/vit.float.onnx" -p uniform:1 -o out.onnx
run align "$GOLDEN/oracle/model/dynamic.onnx"
ls
