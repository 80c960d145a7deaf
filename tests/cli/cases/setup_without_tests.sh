# meson configures on a machine that has not what the tests need (tools/setup without --tests): a build without tests. Only
# who asks for tests is told what is missing.
cat >pkg-config <<'EOF'
#!/bin/sh
case " $* " in *" cmocka "*) exit 1 ;; esac
exec pkg-config "$@"
EOF
chmod +x pkg-config
export PKG_CONFIG=$PWD/pkg-config CMAKE=/nowhere/cmake
meson setup build "$ROOT" >log 2>&1 || cat log
grep -o 'there are no tests in this build: .*' log
test -f build/build.ninja
meson introspect --tests build
meson setup other "$ROOT" -Dtests=enabled >log 2>&1 && echo "tests without cmocka?"
grep -o "ERROR: Dependency .*cmocka.* not found" log || cat log
