# Files that are no captures, or break the format: refused with what was found, by every command that reads.
run info missing.h5
run info .
capture cnn.w8a8 -d cpu -p zeros -o good.h5
for file in "$GOLDEN"/bad/captures/*.h5; do
    case $file in */valid.h5) continue ;; esac
    run info "$file"
    for command in ls verify; do
        code=0
        "$NPUDIFF" $command "$file" >/dev/null 2>&1 || code=$?
        [ $code = 2 ] || echo "$command: exit $code"
    done
    code=0
    "$NPUDIFF" compare good.h5 "$file" >/dev/null 2>&1 || code=$?
    [ $code = 2 ] || echo "compare: exit $code"
done
code_of verify "$GOLDEN/bad/captures/valid.h5" # readable, but without true digests
cp "$GOLDEN/bad/captures/text.h5" . # the table must not depend on where the project lies
run verify good.h5 text.h5 missing.h5
run verify good.h5 missing.h5 # a file that is missing is not damaged
run verify missing.json
