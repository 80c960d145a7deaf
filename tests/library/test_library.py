#!/usr/bin/env python3
"""The library for other programs: what it exports, what breaks programs, and a program built against an installed copy.

Usage: test_library.py [NAME ...]   BUILD, in the environment, is the build folder."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["BUILD"])
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from support import Scratch, capture, main # noqa: E402

CFLAGS = ["-std=c17", "-Wall", "-Wextra", "-Werror"]


def load_abi():
    loader = importlib.machinery.SourceFileLoader("abi", str(ROOT / "tools" / "abi"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("abi", loader))
    loader.exec_module(module)
    return module


abi = load_abi()


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def example_of(header):
    """The code after "Example:" in the comment at the top of a header, or None."""
    comment = re.match(r"/\*(.*?)\*/", header.read_text(), re.S)[1]
    lines = [re.sub(r"^ \* ?", "", line) for line in comment.splitlines()]
    if "Example:" not in lines:
        return None
    code = []
    for line in lines[lines.index("Example:") + 1:]:
        if line and not line.startswith("    "):
            break
        code.append(line[4:])
    return "\n".join(code)


# What npudiff.h says of processes and signals, in a program that has a child, an atfork handler and a signal handler of its own.
PROCESSES = r"""
#include <npudiff/npudiff.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int n_forks;
static volatile sig_atomic_t n_children;

static void count_fork(void)
{
    n_forks++;
}

static void count_child(int number)
{
    (void)number;
    n_children++;
}

int main(int argc, char **argv)
{
    struct sigaction before[65], after;
    struct nd_capture *capture = NULL;
    struct nd_error err = {0};
    int n_changed = 0, ended = 0;
    sigset_t blocked, still;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    signal(SIGCHLD, argc > 2 ? SIG_IGN : count_child);
    pthread_atfork(count_fork, NULL, NULL);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int i = 1; i < 65; i++)
        sigaction(i, NULL, &before[i]);
    if (nd_capture_open(argv[1], &capture, &err) != ND_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    nd_capture_close(&capture);
    sigprocmask(SIG_BLOCK, NULL, &still);
    for (int i = 1; i < 65; i++)
        n_changed += sigaction(i, NULL, &after) == 0 && (after.sa_handler != before[i].sa_handler || after.sa_flags != before[i].sa_flags
                                                         || sigismember(&blocked, i) != sigismember(&still, i));
    bool has_own = argc > 2 || (waitpid(child, &ended, 0) == child && WEXITSTATUS(ended) == 7);
    printf("%d %d %d %d %d\n", n_forks, n_children > 0, n_changed, has_own, waitpid(-1, NULL, WNOHANG) < 0);
    return 0;
}
"""

# Headers of a few types and functions, which the examples of others use.
WITHOUT_EXAMPLE = {"chipset.h", "twin_mark.h", "captured_model.h", "config.h", "placement.h", "interval.h", "frames.h"}


class Headers(Scratch):
    def headers(self):
        """(path, name in #include) of each public header."""
        found = [(path, path.relative_to(ROOT / "include")) for path in sorted((ROOT / "include").rglob("*.h"))]
        self.assertGreater(len(found), 30)
        return found

    def test_each_header_has_an_example_that_compiles(self):
        for header, name in self.headers():
            code = example_of(header)
            self.assertEqual(not code, header.name in WITHOUT_EXAMPLE, f"{name}: its example")
            source = self.folder / f"{header.stem}.c"
            source.write_text(f"#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <{name}>\n{code or ''}")
            run("cc", *CFLAGS, "-Wno-unused-function", f"-I{ROOT / 'include'}", "-fsyntax-only", source)

    def test_each_header_compiles_alone(self):
        for _, name in self.headers():
            source = self.folder / "alone.c"
            source.write_text(f"#include <{name}>\n")
            run("cc", *CFLAGS, f"-I{ROOT / 'include'}", "-fsyntax-only", source)


class Abi(Scratch):
    def test_the_interface_breaks_no_program(self):
        run(ROOT / "tools" / "abi", "--build", BUILD)

    def test_a_description_reads_back(self):
        described = abi.describe(ROOT / "include" / "npudiff")
        self.assertEqual(abi.parse(abi.text_of(described, "a.so.0", "0.1")), (described, ["a.so.0", "0.1"]))

    def describe(self, text):
        include = self.folder / "npudiff"
        include.mkdir(exist_ok=True)
        (include / "npudiff.h").write_text(f"/* Stability: stable. */\n#include <stddef.h>\n{text}\n")
        flags, abi.FLAGS = abi.FLAGS, ["-std=c17", f"-I{self.folder}"]
        try:
            return abi.describe(include)
        finally:
            abi.FLAGS = flags

    def breaks(self, old, new):
        return abi.breaks(self.describe(old), self.describe(new))

    def test_what_breaks_programs_is_found(self):
        options = "struct o { size_t struct_size; char a; char *b; char c; };"
        cases = [
            ("int f(int a);", "", "function f: it is gone"),
            ("int f(int a);", "int f(long a);", "function f: it is declared otherwise"),
            ("enum e { A = 1, B };", "enum e { A = 1, C, B };", "enum e: a value has changed or is gone"),
            ("struct s { int a; };", "struct s { int a; int b; };", "struct s: its size has changed"),
            ("struct s { int a; char b; };", "struct s { int a; char b, c; };", "struct s: its size has changed"),
            ("struct s { int a, b; };", "struct s { int b, a; };", "struct s: a member has changed"),
            ("struct s { int *a; };", "struct s { long *a; };", "struct s: a member has changed"),
            (options, "struct o { size_t struct_size; char *b; char a, c; };", "struct o: a member has changed"),
            (options, "struct o { size_t struct_size; char a; char *b; char c, d; };",
             "struct o: a new member lies in what was padding"),
        ]
        for old, new, said in cases:
            self.assertEqual(self.breaks(old, new), [said], (old, new))

    def test_what_only_grows_breaks_nothing(self):
        options = "struct o { size_t struct_size; char a; };"
        cases = [
            ("int f(int a);", "int f(int a); int g(void);"),
            ("enum e { A };", "enum e { A, B };"),
            (options, "struct o { size_t struct_size; char a; size_t b; };"),
            ("typedef void (*v)(int a, char *b);", "typedef void (*v)(int a, char *b);"),
            ("int f(int a);", "static inline int g(int a) { return a; } int f(int a);"),
        ]
        for old, new in cases:
            self.assertEqual(self.breaks(old, new), [], (old, new))

    def test_stable_structs_that_programs_make_have_their_size_or_keep_it(self):
        """A pointer to one is an argument. Those without struct_size never grow, and npudiff.h names them."""
        structs, used = {}, set()
        for (_, stable), entries in abi.describe(ROOT / "include" / "npudiff").items():
            for name, lines in entries.items():
                if stable == "stable" and name.startswith("struct "):
                    structs[name[7:]] = any(line.endswith(" size_t struct_size") for line in lines)
                elif name.startswith("function "):
                    used |= set(re.findall(r"struct (\w+) (?:\*(?!\*)|\w+[,)])", lines[0].split("(", 1)[1]))
        given = {name for name in structs if name in used}
        self.assertLessEqual({"nd_capture_verification", "nd_error"}, given)
        said = (ROOT / "include/npudiff/npudiff.h").read_text().split("Options. A struct")[1].split("Stability.")[0]
        for name in given:
            self.assertTrue(name in said, name)
            self.assertEqual(structs[name], name == "nd_capture_verification", name)

    def test_unstable_headers_hold_within_a_minor_version(self):
        old = {("a.h", "unstable"): {"function f": ["int f(void)"]}}
        self.assertEqual(abi.breaks(old, {("a.h", "unstable"): {}}), [])
        self.assertEqual(abi.breaks(old, {("a.h", "unstable"): {}}, also_unstable=True), ["function f: it is gone"])
        stable = {("a.h", "stable"): {"function f": ["int f(void)"]}}
        self.assertEqual(abi.breaks(stable, old), ["a.h is not stable any more"])

    def test_symbols_that_do_not_fit_the_headers_are_found(self):
        described = {("a.h", "stable"): {"function f": ["void f(void)"]},
                     ("b.h", "unstable"): {"function g": ["void g(void)"]}}
        fine = {"f": "NPUDIFF_0", "g": "NPUDIFF_UNSTABLE_0.1"}
        self.assertEqual(abi.check_symbols(described, fine), [])
        for change, words in [({"f": "NPUDIFF_UNSTABLE_0.1"}, "f is stable, but exported as"),
                              ({"g": "NPUDIFF_0"}, "g is unstable, but exported as"),
                              ({"h": "NPUDIFF_0"}, "no public header")]:
            self.assertIn(words, abi.check_symbols(described, {**fine, **change})[0])
        self.assertIn("f is declared in a public header, but not exported",
                      abi.check_symbols(described, {"g": "NPUDIFF_UNSTABLE_0.1"})[0])


class Versions(Scratch):
    """The version and the soname are written down in several places."""

    def test_all_packages_have_the_version_of_the_build(self):
        def find(path, pattern):
            return re.search(pattern, (ROOT / path).read_text(), re.M)[1]

        version = find("meson.build", r"^  version: '(.*?)'")
        self.assertEqual(find("debian/changelog", r"^npudiff \((.*?)\)"), version)
        self.assertEqual(find("python/pyproject.toml", r'^version = "(.*?)"'), version)
        header = "include/npudiff/core/status.h"
        self.assertEqual(".".join(find(header, rf"^#define NPUDIFF_VERSION_{part} (\d+)$") for part in ("MAJOR", "MINOR", "PATCH")), version)

    def test_the_package_of_the_library_is_named_after_its_soname(self):
        soname = abi.symbols(BUILD / "src" / "libnpudiff.so")[1]
        package = "libnpudiff" + soname.rsplit(".", 1)[1]
        self.assertIn(f"Package: {package}\n", (ROOT / "debian" / "control").read_text())
        symbols = (ROOT / "debian" / f"{package}.symbols").read_text()
        self.assertTrue(symbols.startswith(f"{soname} {package} "))
        nodes = set(abi.symbols(BUILD / "src" / "libnpudiff.so")[0].values())
        self.assertEqual(set(re.findall(r"\(symver\)(\S+)", symbols)), nodes)


class Options(Scratch):
    def test_packages_give_options_that_the_build_has(self):
        rows = json.loads(run("meson", "introspect", "--buildoptions", BUILD))
        options = {row["name"]: row for row in rows}
        for path in ("debian/rules", "python/hatch_build.py", "tools/build_agent"):
            for name, value in re.findall(r"-D(\w+)=([\w.-]*)", (ROOT / path).read_text()):
                self.assertIn(name, options, path)
                choices = {"boolean": ["true", "false"]}.get(options[name]["type"], options[name].get("choices"))
                self.assertTrue(choices is None or value in choices, f"{path}: -D{name}={value}: {choices}")


class Installed(Scratch):
    """The build, installed into a folder of its own."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", cls.shared)
        cls.prefix = cls.shared / "usr" / "local"
        cls.library = next(cls.prefix.glob("lib*/**/libnpudiff.so")).parent # lib64 without dpkg-dev
        cls.environment = {**os.environ, "PKG_CONFIG_PATH": str(cls.library / "pkgconfig"),
                           "PKG_CONFIG_SYSROOT_DIR": str(cls.shared)}

    def pkg_config(self, *what):
        return run("pkg-config", *what, "npudiff", env=self.environment).split()

    def test_a_program_outside_builds_against_it_and_runs(self):
        program = self.folder / "compare"
        run("cc", *CFLAGS, ROOT / "examples" / "compare.c", *self.pkg_config("--cflags", "--libs"),
            f"-Wl,-rpath,{self.library}", "-o", program)
        capture("cnn.w8a8.onnx", ["exact", "emu:round=floor"], ["uniform:2"], self.folder / "captures")
        captures = sorted((self.folder / "captures").glob("*.h5"), key=lambda p: "exact" not in p.name)
        done = subprocess.run([program, *captures], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"  stem/relu \(Conv\): \d+ of \d+ values differ, the first that does, "
                                      r"by at most 1 LSB\n")
        done = subprocess.run([program, captures[0], captures[0]], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.split("\n")[1][:5]), (0, "  all"))
        capture("cnn.w8a8.onnx", ["exact", "emu:round=floor"], ["uniform:2"], self.folder / "digests", "--store", "digest")
        for ref, test, said in ((0, 1, r"  stem/relu \(Conv\): \d+ of 2 samples differ, the first that does\n"), (0, 0, r"\n  all \d+ tensors")):
            done = subprocess.run([program, *(self.folder / "digests" / captures[i].name for i in (ref, test))], capture_output=True, text=True)
            self.assertEqual(done.returncode, int(test != ref), done.stderr)
            self.assertRegex(done.stdout, said)
        done = subprocess.run([program, captures[0], "missing.h5"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("[ND-204]", done.stderr)

    def test_every_example_builds(self):
        for source in sorted((ROOT / "examples").glob("*.c")):
            run("cc", *CFLAGS, source, *self.pkg_config("--cflags", "--libs"), "-o", self.folder / source.stem)

    def test_the_file_of_pkg_config_tells_the_version_of_the_command(self):
        version = run(BUILD / "src" / "cli" / "npudiff", "--version").split()[1]
        self.assertEqual(self.pkg_config("--modversion"), [version])

    def test_a_program_asks_for_the_version_when_it_is_compiled(self):
        source, program = self.folder / "version.c", self.folder / "version"
        source.write_text('''#include <npudiff/core/status.h>
#include <stdio.h>
#if NPUDIFF_VERSION < NPUDIFF_VERSION_OF(0, 2, 0) || NPUDIFF_VERSION >= NPUDIFF_VERSION_OF(1000, 0, 0) || \\
    NPUDIFF_VERSION_OF(0, 9, 999) >= NPUDIFF_VERSION_OF(0, 10, 0)
#error "versions do not compare"
#endif
int main(void)
{
    printf("%d.%d.%d %s\\n", NPUDIFF_VERSION_MAJOR, NPUDIFF_VERSION_MINOR, NPUDIFF_VERSION_PATCH, nd_version());
}
''')
        run("cc", *CFLAGS, source, *self.pkg_config("--cflags", "--libs"), f"-Wl,-rpath,{self.library}", "-o", program)
        of_header, of_library = run(program).split()
        self.assertEqual(of_header, of_library)

    def test_processes_and_signals_of_a_program_stay_its_own(self):
        source, program = self.folder / "processes.c", self.folder / "processes"
        source.write_text(PROCESSES)
        run("cc", *CFLAGS, "-D_GNU_SOURCE", source, *self.pkg_config("--cflags", "--libs"), f"-Wl,-rpath,{self.library}", "-pthread", "-o", program)
        capture = ROOT / "golden/fuzz/capture/exact.h5"
        # One fork; no handler or mask is changed; the program's own child is left to it, and none of the library's is left.
        self.assertEqual(run(program, capture), "1 1 0 1 1\n")
        self.assertEqual(run(program, capture, "ignores SIGCHLD"), "1 0 0 1 1\n")

    def test_the_library_is_installed_with_its_soname(self):
        dynamic = run("readelf", "-dW", self.library / "libnpudiff.so")
        self.assertIn("soname: [libnpudiff.so.0]", dynamic)
        self.assertTrue((self.library / "libnpudiff.so.0").resolve().name.startswith("libnpudiff.so.0."))

    def test_all_headers_and_commands_are_installed(self):
        def headers(top):
            return {p.relative_to(top) for p in (top / "npudiff").rglob("*.[hd]*") if p.is_file()}

        self.assertEqual(headers(self.prefix / "include"), headers(ROOT / "include"))
        self.assertEqual({p.name for p in (self.prefix / "bin").iterdir()},
                         {"npudiff", "npudiff-agent", "npudiff-agent-exact", "npudiff-agent-exec", "npudiff-fingerprint", "npudiff-lab"})


if __name__ == "__main__":
    main()
