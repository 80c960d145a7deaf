# Gates at, and one below, the largest difference that was found. What the CPU provider's optimised kernels give differs
# between processors, and so the bounds are read from the comparison itself.
capture vit.w8a8 -d cpu -d 'cpu?optimisation=all' -p uniform:40 -o codes
capture cnn.float -d cpu -d 'cpu?optimisation=all' -p uniform:40 -o floats
cat >largest.py <<'END'
import json, sys
result = json.load(open(sys.argv[1]))
values = [(e["pairs"][0][sys.argv[2]] or 0, e["name"]) for e in result["tensors"]]
assert result["verdict"] == "differs" and max(values)[0] > 1
print(*max(values))
END
try() { # text that stands for the real command, then the command
    local text=$1 code=0
    shift
    "$NPUDIFF" compare -q "$@" || code=$?
    echo "$text: exit $code"
}
codes="codes/cpu.h5 codes/cpu-optimisation-all.h5"
floats="floats/cpu.h5 floats/cpu-optimisation-all.h5"
"$NPUDIFF" compare $codes --json >codes.json || echo "codes: exit $?"
"$NPUDIFF" compare $floats --json >floats.json || echo "floats: exit $?"

read -r lsb edge < <(python largest.py codes.json max_lsb)
try "--lsb LARGEST" $codes --lsb "$lsb"
try "--lsb LARGEST-1" $codes --lsb $((lsb - 1))
try "--lsb 0,*:LARGEST" $codes --lsb "0,*:$lsb"
try "--lsb LARGEST,EDGE:LARGEST-1" $codes --lsb "$lsb,$edge:$((lsb - 1))"
try "--lsb 0,*:LARGEST,EDGE:0" $codes --lsb "0,*:$lsb" --lsb "$edge:0"
try "--lsb LARGEST --bitwise" $codes --lsb "$lsb" --bitwise

read -r ulp edge < <(python largest.py floats.json max_ulp)
try "--ulp LARGEST" $floats --ulp "$ulp"
try "--ulp LARGEST-1" $floats --ulp $((ulp - 1))

for files in codes floats; do
    read -r distance edge < <(python largest.py $files.json max_abs 2>/dev/null || python - $files.json <<'END'
import json, sys
print(*max((e["pairs"][0]["max_abs"] or 0, e["name"]) for e in json.load(open(sys.argv[1]))["tensors"]))
END
    )
    try "$files: --atol LARGEST" ${!files} --atol "$distance"
    try "$files: --atol LARGEST*0.99" ${!files} --atol "$(python -c "print($distance * 0.99)")"
    try "$files: --atol 0 --rtol 0" ${!files} --atol 0 --rtol 0
    try "$files: --rtol 0 --atol 0,*:LARGEST" ${!files} --rtol 0 --atol "0,*:$distance"
    try "$files: no gate" ${!files}
done
# The JSON tells the gate of an edge and how many elements fail it.
"$NPUDIFF" compare $codes --lsb "$lsb" --json >within.json
python - <<'END'
import json
result = json.load(open("within.json"))
print(result["verdict"], result["gated"], {e["verdict"] for e in result["tensors"]} <= {"same", "within"},
      sum(e["pairs"][0]["failing"] for e in result["tensors"]), sum(e["pairs"][0]["differing"] for e in result["tensors"]) > 0)
END
