# A result that could not be written is no result.
for command in probes --help --version "capture --help" "runtimes --json"; do
    code=0
    "$NPUDIFF" $command 2>&1 >/dev/full || code=$?
    echo "$command: exit $code"
done
