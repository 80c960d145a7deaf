# What errors mean: one, in every spelling of its id, all of them, and ids that no error has.
run help ND-811
for id in nd-811 ND811 811; do "$NPUDIFF" help $id | cmp - <("$NPUDIFF" help ND-811); done
run help ND-9
run help ND-
"$NPUDIFF" help errors >errors
head -3 errors
tail -1 errors
# Every error has a cause and something to do, and the index has every error.
python - <<'END'
import os, re, subprocess
ids = re.findall(r"^ND_ERROR\(\w+, (\d+)", open(f"{os.environ['ROOT']}/include/npudiff/core/error_ids.def").read(), re.M)
listed = re.findall(r"^ND-(\d+) ", open("errors").read(), re.M)
print("the index is complete:", listed == ids)
for number in ids:
    text = subprocess.run([os.environ["NPUDIFF"], "help", f"ND-{number}"], capture_output=True, text=True).stdout
    if not re.search(r"^ND-%s: .+\n\ncause       [A-Za-z].*\.\nwhat to do  .*\.\nexit code   [235]\n$" % number, text, re.S):
        print("no help on", number, text)
END
