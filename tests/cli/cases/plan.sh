# What a campaign comes to, its tasks as scripts, and what is refused.
ln -s "$GOLDEN/models" models
cat >one.yaml <<END
models: [{name: mul, quantised: models/mul.u8.onnx, probes: [mul=models/mul-probe.npz]}]
devices: [exact, 'emu:floor']
output: out
explain: yes
policy: [{gate: lsb, max: 1}]
END
keyless() { sed -E 's|(--key [^/]*/)[0-9a-f]{16}|\1KEY|; s|end-[0-9a-f]{16}|end-KEY|'; }
run qualify --plan one.yaml
run qualify --plan one.yaml -v | sed -n '/TASK/,$p'
"$NPUDIFF" qualify --plan one.yaml --json | python -c '
import json, sys
for task in json.load(sys.stdin)["tasks"]:
    print(task["task"], task["file"], task["needs"], task["done"], task["runs"], task["source"])'
for engine in tasks make slurm snakemake; do
    echo "== $engine"
    "$NPUDIFF" qualify one.yaml --emit $engine | keyless
done
run qualify --plan one.yaml --explain-parts 2 -v | sed -n '/TASK/,$p'
"$NPUDIFF" qualify one.yaml --emit snakemake --explain-parts 2 | keyless | grep explain
run qualify one.yaml --explain-parts 2
"$NPUDIFF" qualify one.yaml --emit tasks >tasks.sh
PATH=$(dirname "$NPUDIFF"):$PATH sh tasks.sh 2>&1
run qualify --plan one.yaml | sed -n 1p
"$NPUDIFF" qualify --plan one.yaml --json | python -c '
import json, sys
told = json.load(sys.stdin)
print([task["done"] for task in told["tasks"]], {task["source"] == task["file"] for task in told["tasks"]})'
"$NPUDIFF" qualify one.yaml --emit make | keyless
run qualify one.yaml --task captures/mul/gone.h5
run qualify one.yaml --task captures/mul/exact.h5 --key 0.1.0/0123456789abcdef
run qualify one.yaml --key 0.1.0/0123456789abcdef
run qualify one.yaml --emit make --json
run qualify one.yaml --emit cron
run qualify --plan
