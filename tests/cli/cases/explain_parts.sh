# An explanation that is cut into parts and merged is the explanation, to the byte, whatever the number of parts, threads and memory;
# also with a faulty device, one that equals another, one that failed, and layers that are examined in some samples only.
capture cnn.w8a8 -d cpu -d exact -d emu:htp-v73 -d emu:htp-v69,clamp@logits=0:120 -d emu:htp-v69,stale@residual/conv -p uniform:9 -p zeros -o captures
cp captures/cpu.h5 captures/cpu-again.h5
options="--json --quantised $GOLDEN/models/cnn.w8a8.onnx captures/*.h5 -p uniform"
# name options: whole, and merged from 1, 2, 3 and 7 parts, given in any order.
check() {
    local name=$1 n k merge
    shift
    "$NPUDIFF" explain $options "$@" >whole.json || echo "$name: exit $?"
    for n in 1 2 3 7; do
        merge=()
        for ((k = 1; k <= n; k++)); do
            "$NPUDIFF" explain $options "$@" --part $k/$n --threads $((1 + k % 2)) --memory $((16 * k)) >$name-$k-of-$n.json || echo "$name: part $k: exit $?"
            merge=(--merge $name-$k-of-$n.json "${merge[@]}")
        done
        "$NPUDIFF" explain $options "$@" "${merge[@]}" >merged.json || echo "$name: $n parts: exit $?"
        cmp whole.json merged.json
    done
}
check plain
check float --float "$GOLDEN/models/cnn.float.onnx"
check few --samples 5 --effect-samples 2
# The text, too.
merge="--merge plain-1-of-2.json --merge plain-2-of-2.json"
"$NPUDIFF" explain ${options#--json} -v >whole.txt || echo "exit $?"
"$NPUDIFF" explain ${options#--json} -v $merge >merged.txt || echo "exit $?"
cmp whole.txt merged.txt
# Captures without quantised values have no part that could be cut: the parts are empty.
capture cnn.float -d cpu -p uniform:4 -o floats
options="--json --float $GOLDEN/models/cnn.float.onnx floats/cpu.h5"
check floats
# What does not belong together is refused.
options="--quantised $GOLDEN/models/cnn.w8a8.onnx captures/*.h5 -p uniform"
run explain $options --merge plain-1-of-2.json
run explain $options --merge plain-1-of-2.json --merge plain-1-of-2.json
run explain $options --merge plain-1-of-2.json --merge plain-2-of-3.json
run explain $options --samples 5 $merge
run explain $options --effect-samples 2 $merge
run explain $options --float "$GOLDEN/models/cnn.float.onnx" $merge
run explain ${options% -p*} -p zeros $merge
run explain --quantised "$GOLDEN/models/cnn.w8a8.onnx" captures/cpu.h5 $merge
run explain $options --merge plain-1-of-2.json --merge missing.json
# One digit of one sum, a sum that is missing, a different npudiff, half a file.
damage() {
    python - "$1" <<'END_OF_DAMAGE'
import json
import sys

text = open("plain-2-of-2.json").read()
part = json.loads(text)
how = sys.argv[1]
if how == "digit":
    last = part["evaluated"][1]
    part["evaluated"][1] = last[:200] + ("B" if last[200] != "B" else "C") + last[201:]
elif how == "tally":
    last = part["tallies"][0]
    part["tallies"][0] = last[:200] + ("B" if last[200] != "B" else "C") + last[201:]
elif how == "missing":
    del part["evaluated"][1]
elif how == "number":
    part["evaluated"][1] = 7
elif how == "version":
    part["npudiff"] = "0.1.0"
open("damaged.json", "w").write(text[: len(text) // 2] if how == "half" else json.dumps(part))
END_OF_DAMAGE
    run explain $options --merge plain-1-of-2.json --merge damaged.json 2>&1 | sed 's/this is npudiff [0-9.]*/this is npudiff VERSION/; s/line [0-9]*, .*/line N/'
}
for how in digit tally missing number version half; do damage $how; done
run explain $options --part 1/2
run explain $options --json --part 3/2
run explain $options --json --part 1/2 --identify
