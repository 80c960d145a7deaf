# Of every fault and of every layer that follows nothing known the text says how sure the cause is, and so does JSON. With one run
# of each sample nobody knows that a flip is noise.
says() {
    capture cnn.w8a8 -d "emu:htp-v73,$1" -p uniform:20 --repeats 1 -o "$2.h5"
    "$NPUDIFF" explain --quantised "$GOLDEN/models/cnn.w8a8.onnx" "$2.h5" --width 400 >"$2.txt" 2>&1 || true
    echo "$1: $(grep -oE "(evidence|unexplained): .*" "$2.txt")"
    "$NPUDIFF" explain --quantised "$GOLDEN/models/cnn.w8a8.onnx" "$2.h5" --json >"$2.json" 2>/dev/null || true
    python -c "import json, sys; d = json.load(open(sys.argv[1]))['devices'][0]; print([(x['layer'], x['certainty']) for x in d['faulty'] + d['unexplained']])" "$2.json"
}
says stale@residual/conv stale
says clamp@logits=0:120 clamp
says round@logits=floor floor
says zero-point@logits=3:4,round@logits=floor both
