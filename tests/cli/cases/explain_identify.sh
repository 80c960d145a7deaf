# Programs that captures leave possible: of one, of a unit of its own, of what changes, of too little; and as JSON.
capture cnn.w8a8 -d emu:double:3 -p uniform:6 -p ties -o double.h5
capture cnn.w8a8 -d emu:half-even,round@residual/conv=floor -p uniform:6 -o odd.h5
capture cnn.w8a8 -d emu:flip@residual/relu=0.01 -p uniform:4 --repeats 2 -o changing.h5
capture cnn.w8a8 -d exact -p uniform:2 --tensors outputs -o outputs.h5
ln -s "$GOLDEN"/models/*.onnx .
told() { run explain -v --identify --quantised cnn.w8a8.onnx "$@" | sed '2,/^verdict/d'; }
told double.h5
told double.h5 -p uniform --samples 1
told odd.h5
told changing.h5
told outputs.h5
run explain --identify --quantised cnn.w8a16.onnx odd.h5
run explain --identify --quantised cnn.w8a8.onnx double.h5 --json >all.json
run explain --identify --quantised cnn.w8a8.onnx double.h5 --json --threads 1 >one.json
python - <<'END'
import json
def read(name):
    return json.loads("".join(line for line in open(name).readlines()[1:] if not line.startswith("exit ")))
one, many = read("one.json")["identification"], read("all.json")["identification"]
device, = many["devices"]
unit = next(u for u in device["layers"] if u["name"] == "residual/conv")
print(one == many, device["probes"], device["verdict"], device["groups"])
print(unit["thresholds"]["positive"], unit["thresholds"]["negative"])
print([(p["from"], p["p"]) for p in unit["curve"]][12:16])
END
