# run.py --update writes what a case prints; not when the program vanishes, or is replaced, in the middle of it.
mkdir -p project/tests/cli/cases project/build/src/cli
cp "$ROOT/tests/cli/run.py" "$ROOT/tests/cli/helpers.sh" project/tests/cli
ln -s "$ROOT/tests/support" project/tests/support
cd project
npudiff=$PWD/build/src/cli/npudiff
write_program() {
    printf '#!/bin/sh\n[ "$1" != --version ] || echo npudiff 1\n[ "$1" != greet ] || echo hello\n' >new
    chmod +x new && mv new "$npudiff"
}
update() {
    local code=0
    write_program
    NPUDIFF=$npudiff python tests/cli/run.py --update one >out 2>err || code=$?
    echo "exit $code: $(cat err), recorded: $(cat tests/cli/cases/one.out)" | sed "s|$PWD|PROJECT|"
}
echo '"$NPUDIFF" greet' >tests/cli/cases/one.sh
update
echo '"$NPUDIFF" greet; rm "$BUILT/npudiff"; "$NPUDIFF" greet || true' >tests/cli/cases/one.sh
update
echo 'cp "$BUILT/npudiff" new; mv new "$BUILT/npudiff"; echo nonsense' >tests/cli/cases/one.sh
update
