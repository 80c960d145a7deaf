# What every command prints by default: at most 24 lines of 80 columns, the verdict in one of the first 3.
cp "$GOLDEN"/models/*.onnx .
python -c "import numpy, sys; d = numpy.load(sys.argv[1]); numpy.savez('few.npz', **{k: d[k][:20] for k in d.files})" "$GOLDEN/models/digits-test.npz"
for model in cnn.w8a8 cnn.w8a16 vit.w8a8; do
    capture $model -d cpu -d exact -d emu:htp-v69 -d emu:htp-v73 -d emu:htp-v73,stale@logits -p digits=few.npz -o $model
done
"$NPUDIFF" golden add store cnn.w8a8/cpu.h5 vit.w8a8/cpu.h5 >added.txt
cat >campaign.yaml <<END
models:
  - {name: cnn, quantised: cnn.w8a8.onnx, float: cnn.float.onnx, probes: ['uniform:20']}
  - {name: vit, quantised: vit.w8a8.onnx, float: vit.float.onnx, probes: ['uniform:20']}
devices: [cpu, exact, 'emu:floor', 'emu:htp-v69', 'emu:htp-v73']
output: out
policy: [{gate: finalize}, {gate: lsb, max: 1}]
END
python - <<'END'
import glob
import os
import re
import shutil
import subprocess

def check(name, *arguments, columns="80", most_lines=24):
    """Runs a command in a pipe."""
    done = subprocess.run([os.environ["NPUDIFF"], *arguments], capture_output=True, text=True, env={**os.environ, "COLUMNS": columns})
    lines = done.stdout.splitlines()
    wide = [line for line in lines if len(line) > int(columns)]
    first = [i for i, line in enumerate(lines) if re.match(verdict, line)]
    print(name, columns, "columns: exit", done.returncode, "; ".join(
        [f"{len(lines)} lines"] * (len(lines) > most_lines) + [f"wide: {line}" for line in wide] + ["no verdict"] * (not first or first[0] > 2)) or "fits")

verdict = r"(ALIGNED|NOT ALIGNED|REFUSED|SAME|OK|DIFFERS|HEALTHY|FAULTY|UNEXPLAINED|INCONCLUSIVE|READY|NOT READY|NOT COMPARABLE|NEW|KNOWN|UNSTEADY|TOO FEW)\b"
for model in ("cnn.w8a8", "cnn.w8a16", "vit.w8a8"):
    captures = sorted(glob.glob(f"{model}/*.h5"))
    check(f"compare {model}", "compare", *captures)
    check(f"explain {model}", "explain", "--quantised", f"{model}.onnx", "--float", f"{model.partition('.')[0]}.float.onnx", "--samples", "4", "--effect-samples", "2", *captures)
    check(f"placement {model}", "placement", f"{model}.onnx", *captures)
    check(f"latency {model}", "latency", *captures)
    check(f"align {model}", "align", f"{model}.onnx", "--float", f"{model.partition('.')[0]}.float.onnx", "-p", "digits=few.npz", "-o", f"{model}.aligned.onnx")
for model in ("cnn.w8a8", "vit.w8a8"):
    for capture in sorted(glob.glob(f"{model}/*.h5"))[:2]:
        check(f"golden check {capture}", "golden", "check", "store", capture)
        check(f"triage {capture}", "triage", capture, "--against", "store")
check("qualify", "qualify", "campaign.yaml")

# Those that list something have it in the first lines: what it is, and how many. In 40 columns a command to paste may be
# wider, because a path stays whole.
verdict = "."
encodings = os.environ["GOLDEN"] + "/encodings"
shutil.copy(f"{encodings}/cnn.per-tensor.1.0.0.encodings", "a.encodings")
shutil.copy(f"{encodings}/cnn.per-channel.1.0.0.encodings", "b.encodings")
shutil.copy("vit.w8a8/cpu.h5", "c.h5")
for program, *words in (("fingerprint", "-d", "emu:htp-v69", "--section", "linear-u8", "-o", "a.json", "-q"),
                        ("fingerprint", "-d", "emu:htp-v73", "--section", "linear-u8", "-o", "b.json", "-q")):
    subprocess.run([os.environ["NPUDIFF"], program, *words], check=True, stderr=subprocess.DEVNULL)
os.mkdir("sheets")
for name in ("a.json", "b.json"):
    shutil.copy(name, "sheets")
for columns in ("40", "80"):
    for command in (["info", "--list", "c.h5"], ["info", "--list", "vit.w8a8.onnx"], ["compare", "--config", "c.h5"], ["compare", "--config", "c.h5", "cnn.w8a8/exact.h5"],
                    ["logs", "c.h5"], ["info", "c.h5"], ["encodings", "list", "vit.w8a8.onnx"],
                    ["encodings", "diff", "a.encodings", "b.encodings"], ["encodings", "check", "a.encodings", "cnn.w8a8/cpu.h5"],
                    ["golden", "list", "store"], ["golden", "prune", "store"], ["probes"], ["runtimes"],
                    ["devices", "--no-phones"], ["verify", "c.h5"], ["fingerprint", "--diff", "a.json", "b.json"],
                    ["fingerprint", "--campaign", "sheets"],
                    ["reduce", "cnn.w8a8.onnx", "-d", "emu:htp-v69", "--differs", "0lsb"],
                    ["triage", "c.h5", "--against", "store"], ["golden", "check", "store", "c.h5"],
                    ["explain", "--quantised", "vit.w8a8.onnx", "c.h5", "--samples", "4", "--effect-samples", "2"],
                    ["export", "model-explorer", "vit.w8a8.onnx", "c.h5", "-o", f"overlays{columns}"]):
        check(" ".join(command), *command, columns=columns)
END
