# Read in by bash before every case (BASH_ENV, set by run.py).

# Runs npudiff and writes a transcript: the command, what it says on both outputs, and the exit code unless 0.
run() {
    local code=0
    echo "\$ npudiff $*"
    "$NPUDIFF" "$@" 2>&1 || code=$?
    [ $code = 0 ] || echo "exit $code"
}

# The same, with only the exit code told.
code_of() {
    local code=0
    "$NPUDIFF" "$@" >/dev/null 2>&1 || code=$?
    echo "npudiff $*: exit $code"
}

# Captures quietly: capture MODEL ARGUMENT...
capture() {
    local model=$1
    shift
    "$NPUDIFF" capture "$GOLDEN/models/$model.onnx" -q "$@"
}

python() { "$PYTHON" "$@"; }
