# A device that fails in every operator: exit code 5 with a message, and the datasheet is written all the same. The
# device float64 refuses quantised models, so that it fails there without any runtime.
run fingerprint -d float64 --section linear-u8 -q -o sheet.json
python -c 'import json; print(sorted({(e["verdict"], e["stage"]) for e in json.load(open("sheet.json"))["sections"]["linear-u8"]}))'
run fingerprint -d float64 --section linear-u8
# With --json there is one document, the datasheet.
"$NPUDIFF" fingerprint -d float64 --section linear-u8 --json -q >document.json 2>/dev/null || echo "exit $?"
cmp document.json sheet.json
# One operator that answers is enough.
run fingerprint -d exact --section quantise -q
