# Whatever prints JSON prints JSON, with the names that are promised.
capture cnn.w8a8 -d cpu -p "digits=$GOLDEN/models/digits-test.npz" -p ties:2 -o a.h5 --profile
"$NPUDIFF" capture "$GOLDEN/models/cnn.w8a8.onnx" -d cpu -p zeros -o b --json >capture.json 2>/dev/null
"$NPUDIFF" info a.h5 --json >info.json
"$NPUDIFF" info --list a.h5 --json >ls.json
"$NPUDIFF" verify a.h5 --json >verify.json
"$NPUDIFF" compare a.h5 a.h5 --json >compare.json
for command in devices runtimes probes; do
    "$NPUDIFF" $command --json >$command.json
done
python - <<'END'
import glob, json

for name in sorted(glob.glob("*.json")):
    content = json.load(open(name))
    print(name, sorted(content))
    for key, rows in sorted(content.items()):
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            print(" ", key, sorted(rows[0]))
            for below in ("pairs", "devices"):
                if below in rows[0] and isinstance(rows[0][below][0], dict):
                    print("   ", below, sorted(rows[0][below][0]))
        elif isinstance(rows, dict):
            print(" ", key, sorted(k for k in rows if not k.startswith("library_")))

# What compare promises; these names stay.
result = json.load(open("compare.json"))
promised = {"verdict", "devices", "tensors", "first_difference", "accuracy"}
of_device = {"uri", "capture", "chipset"}
of_edge = {"name", "comparable", "groups", "pairs"}
of_pair = {"ref", "test", "elements", "differing", "max_lsb", "max_ulp", "max_abs", "nan"}
assert promised <= set(result)
assert all(of_device <= set(d) for d in result["devices"])
assert all(of_edge <= set(e) and all(of_pair <= set(p) for p in e["pairs"]) for e in result["tensors"])
print("promised names are there")
END
