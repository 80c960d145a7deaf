# Commands that others do now: the old names still work and give the same, and no help and no completion has them.
capture mul.u8 -d exact -d emu:floor -p ramp -o captures
a=captures/exact.h5 b=captures/emu-floor.h5
cat >one.yaml <<YAML
models: [{name: mul, quantised: '$GOLDEN/models/mul.u8.onnx', probes: [ramp]}]
devices: [exact]
output: out
policy: [{gate: finalize}]
YAML
same() { # OLD... -- NEW...
    local old=() code=0 other=0
    while [ "$1" != -- ]; do
        old+=("$1")
        shift
    done
    shift
    "$NPUDIFF" "${old[@]}" >old.txt 2>&1 || code=$?
    "$NPUDIFF" "$@" >new.txt 2>&1 || other=$?
    cmp old.txt new.txt && echo "${old[*]}: exit $code and $other, as $*"
}
same ls $a -- info --list $a
same ls $a --all --json -- info $a --list --all --json
same ls "$GOLDEN/models/mul.u8.onnx" -v -- info "$GOLDEN/models/mul.u8.onnx" -v
same ls $a --log stdout -- info --list $a --log stdout
same plan one.yaml -v -- qualify one.yaml --plan -v
same plan one.yaml -j 2 -- qualify one.yaml --plan -j 2
same config $a -- compare --config $a
same config $a $b --json -- compare $a $b --config --json
same config $a $b --lsb 2 -- compare --config $a $b --lsb 2
same bundle $a -o /dev/stdout -q -- golden bundle $a -o /dev/stdout -q
same bundle $a -- golden bundle $a
same bundle $a -o x.json --note text -- golden bundle $a -o x.json --note text
for command in ls plan bundle config; do
    same help $command -- help $(sed 's/ls/info/;s/plan/qualify/;s/bundle/golden/;s/config/compare/' <<<$command)
    same $command --help -- help $(sed 's/ls/info/;s/plan/qualify/;s/bundle/golden/;s/config/compare/' <<<$command)
done
run compare $a
run info $a --all
run info "$GOLDEN/models/mul.u8.onnx" --log stdout
run qualify one.yaml --plan --emit make
run golden bundle $a $b -o x.json
run pla
"$NPUDIFF" help | grep -E '^  (ls|plan|bundle|config) ' || echo not in the help
"$NPUDIFF" --option-table | python -c '
import json, sys
print({"ls", "plan", "bundle", "config"} & {command["name"] for command in json.load(sys.stdin)["commands"]} or "not in the table")'
