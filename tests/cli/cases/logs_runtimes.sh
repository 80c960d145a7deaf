# Logs of many runtimes (golden/logs/README.md): what failed, what fell back, and healthy ones that look alike.
for log in "$GOLDEN"/logs/*.log; do
    code=0
    "$NPUDIFF" logs "$log" >said || code=$?
    echo "== $(basename "$log"): exit $code"
    sed -n 1,2p said
done
: >empty.log
code=0
"$NPUDIFF" logs empty.log || code=$?
echo "exit $code"
"$NPUDIFF" logs "$GOLDEN/logs/litert-one-op-left.log" --json | grep '"outcome"'
