"""The agent alone: what it needs of another machine, how it is built for one, and that it calls nothing Android has not."""
import os
import pathlib
import shutil
import subprocess
import sys

from support import NPUDIFF, Scratch, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
AGENT = pathlib.Path(NPUDIFF).resolve().parents[1] / "devices" / "agent" / "npudiff-agent"


def run(*command, expect=0, **options):
    """stdout and stderr of a command that ends as expected."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != expect:
        raise AssertionError(f"{command}: exit code {done.returncode}, not {expect}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class NeedsTheCLibraryAlone(Scratch):
    def test_the_agent_does(self):
        self.assertIn("libc.so.6", run(ROOT / "tools/check_agent", AGENT))

    def test_another_library_is_named(self):
        exact = AGENT.with_name("npudiff-agent-exact") # which runs on this machine only
        said = run(ROOT / "tools/check_agent", AGENT, exact, expect=1)
        self.assertIn(f"{exact} needs libprotobuf-c.so", said)
        self.assertNotIn(f"{AGENT} needs libprotobuf", said)

    def test_what_is_no_program_is_no_success(self):
        (self.folder / "text").write_text("text\n")
        run(ROOT / "tools/check_agent", self.folder / "text", expect=1)


class Build(Scratch):
    """tools/build_agent, in build folders of its own."""

    def test_alone_for_this_machine(self):
        machine = os.uname().machine
        run(ROOT / "tools/build_agent", f"{machine}-linux", "-C", self.folder)
        agent = self.folder / "agents" / f"{machine}-linux" / "npudiff-agent"
        self.assertEqual(run(agent, "--version"), run(AGENT, "--version"))
        # As it is made of fewer dependencies, so it needs no more.
        run(ROOT / "tools/check_agent", agent)

    def test_what_is_missing_is_named(self):
        said = run(ROOT / "tools/build_agent", "mips-linux", "-C", self.folder, expect=2)
        self.assertIn("'mips-linux' is none of aarch64-linux, aarch64-android", said)
        bare = {k: v for k, v in os.environ.items() if not k.startswith("ANDROID_NDK")}
        said = run(ROOT / "tools/build_agent", "aarch64-android", "-C", self.folder, expect=2, env=bare)
        self.assertIn("--ndk DIR", said)
        said = run(ROOT / "tools/build_agent", "aarch64-android", "-C", self.folder, "--ndk", self.folder, expect=2)
        self.assertIn("no toolchains/llvm/prebuilt/linux-x86_64/bin/clang", said)
        self.assertFalse((self.folder / "agents" / "aarch64-android").exists())


class Android(Scratch):
    """tools/check_android: what can be known without the NDK."""

    def setUp(self):
        super().setUp()
        self.assertTrue(shutil.which("musl-gcc"), "musl-gcc is missing (package musl-tools)")

    def check(self, source, expect):
        path = self.folder / "extra.c"
        path.write_text(source)
        return run(ROOT / "tools/check_android", path, expect=expect), path

    def test_the_agent_calls_nothing_else(self):
        self.assertRegex(run(ROOT / "tools/check_android"), r"^check_android: \d\d sources compile by .*; \d\d+ names are Android's")

    def test_what_android_has_is_accepted(self):
        self.check("int nd_nothing(void);\nint nd_nothing(void) { return 0; }\n", 0)

    def test_a_function_that_android_lacks_is_named_with_its_file(self):
        said, path = self.check("""#include <dlfcn.h>
#include <errno.h>
#include <link.h>
const char *nd_name(void *library, struct link_map **map);
const char *nd_name(void *library, struct link_map **map)
{
    return dlinfo(library, RTLD_DI_LINKMAP, map) == 0 ? program_invocation_name : dlerror();
}
""", 1)
        for name in ("dlinfo", "program_invocation_name"):
            self.assertIn(f"check_android: {path}: '{name}' is not in Android's C library at android28", said)
        self.assertEqual(len(said.splitlines()), 2)

    def test_a_header_of_glibc_alone_does_not_compile(self):
        said, _ = self.check("#include <gnu/libc-version.h>\n", 2)
        self.assertIn("gnu/libc-version.h", said)

    def test_a_warning_is_an_error(self):
        said, _ = self.check("int nd_shorter(long n);\nint nd_shorter(long n) { return n; }\n", 2)
        self.assertIn("-Werror=conversion", said)


if __name__ == "__main__":
    if shutil.which("musl-gcc") is None:
        print("1..0 # SKIP musl-gcc is missing (package musl-tools)")
        sys.exit(0)
    main()
