# The runtimes that npudiff knows are those that tools/setup can install, at the same versions.
NPUDIFF_RUNTIMES=$PWD/none "$NPUDIFF" runtimes --json >list.json
python - <<'END'
import json, os, pathlib, re
pins = {}
for path in pathlib.Path(os.environ["ROOT"], "tools/runtimes").glob("*.txt"):
    text = path.read_text()
    pins[path.stem] = tuple(re.search(rf"^{name}==(\S+)", text, re.M).group(1)
                            for name in ("onnxruntime", "onnxruntime-qnn"))
rows = json.load(open("list.json"))["runtimes"]
known = {row["runtime"]: (row["onnxruntime"], row["onnxruntime_qnn"]) for row in rows}
print("same" if known == pins else f"npudiff knows {known}\ntools/runtimes has {pins}")
print(len(rows) == len(known), [row["installed"] for row in rows])
END
