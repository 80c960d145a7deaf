# A datasheet that is taken in parts and merged is the datasheet, to the byte; there may be more parts than sections.
options="-d exact --section table-u16 --section quantise --section normalise --answers answers -q"
"$NPUDIFF" fingerprint $options -o whole.json || echo "exit $?"
for n in 1 2 3 7; do
    merge=()
    for ((k = 1; k <= n; k++)); do
        "$NPUDIFF" fingerprint $options --part $k/$n -o $k-of-$n.json || echo "part $k/$n: exit $?"
        merge=(--merge $k-of-$n.json "${merge[@]}")
    done
    "$NPUDIFF" fingerprint "${merge[@]}" -o merged-$n.json -q || echo "merged $n: exit $?"
    cmp whole.json merged-$n.json
done
python -c 'import json; print([(list(d["sections"]), d["part"], d["parts"]) for d in map(json.load, map(open, ("1-of-2.json", "2-of-2.json")))])'
run fingerprint --merge 1-of-2.json --merge 2-of-2.json
run fingerprint --merge 1-of-2.json
run fingerprint --merge 1-of-2.json --merge 1-of-2.json
run fingerprint --merge 1-of-2.json --merge whole.json
run fingerprint --merge 1-of-2.json --merge missing.json
"$NPUDIFF" fingerprint -d emu:floor --section table-u16 --section quantise --section normalise --part 2/2 -q -o other.json
run fingerprint --merge 1-of-2.json --merge other.json
"$NPUDIFF" fingerprint -d exact --section table-u8 --section table-u16 --answers answers --part 2/2 -q -o again.json
run fingerprint --merge 1-of-2.json --merge again.json
sed "s/\"largest_off\": [0-9.]*/\"largest_off\": 9/" 2-of-2.json >changed.json
"$NPUDIFF" fingerprint --merge 1-of-2.json --merge changed.json 2>&1 | sed "s/[0-9a-f]\{64\}/SHA/g"
run fingerprint $options --part 0/2
run fingerprint -d exact --merge 1-of-2.json
run fingerprint --campaign sheets -d exact --part 1/2
