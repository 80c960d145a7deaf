"""Finds the constants in src/ that decide something: those whose comment says where they are from.

Such a comment stands before the declaration or behind it, and says "chosen", "measured", a seed, or cites a page of docs/.
"""
import re

COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/"
DECLARATION = re.compile(rf"(?P<before>{COMMENT}\s*\n)?[ \t]*(?P<code>static const (?:double|float|int|long|size_t|u?int\d+_t)\b[^;{{(]*=[^;]*;"
                         rf"|enum \{{[^}}]*=[^}}]*\}};)(?P<after>[ \t]*{COMMENT}(?:[ \t]*\n[ \t]*{COMMENT})*)?")
SOURCE = re.compile(r"\bchosen\b|\bmeasured\b|\bseeds?\b[^.]*\d|docs/\w+/[\w-]+\.md", re.IGNORECASE)
RULER = re.compile(r"-{3,}[^-]*-{3,}")

# The subject of a file: the first that its path begins with.
SUBJECTS = [
    ("Latency and statistics", ["src/compare/latency/", "src/core/statistics/"]),
    ("Comparing", ["src/compare/", "src/report/"]),
    ("Diagnoses from values", ["src/explain/diagnosis/", "src/explain/symptoms/", "src/explain/layer_diagnosis/pair_sums", "src/explain/layers/attribute"]),
    ("Where a layer ran", ["src/explain/fallback/"]),
    ("Which program a device has", ["src/explain/identify/", "src/explain/layers/judge_layers", "src/explain/layers/judge_layers",
                                    "src/explain/trials/code_tally", "src/arithmetic/htp/", "src/arithmetic/known/",
                                    "src/arithmetic/arithmetics/", "src/arithmetic/variants/"]),
    ("Verdicts of layers and devices", ["src/explain/"]),
    ("Fingerprint", ["lab/"]),
    ("Policies, campaigns and the store", ["src/judge/"]),
    ("Files, inputs, processes and their limits", ["src/"]),
]


def words(comment):
    """A comment as one line, without its frame and without rulers."""
    text = re.sub(r"/\*|\*/", " ", comment or "")
    text = re.sub(r"\n[ \t]*\*?[ \t]*", " ", text)
    return " ".join(RULER.sub(" ", text).split())


def constants_of(text):
    """(declared names and values, what the comments say) of every such constant of a file."""
    end, shared = -1, ""
    for found in DECLARATION.finditer(text):
        inside = " ".join(f"{name}: {words(comment)}." for name, comment in
                          re.findall(rf"(\w+)\s*=[^,}}/]*,?[ \t]*({COMMENT})", found["code"]))
        is_next = text[end:found.start()].strip(" ") == "\n"  # the line after a declaration shares the comment before it
        shared = words(found["before"]) or (shared if is_next else "")
        end = found.end()
        said = " ".join(part for part in (shared, words(found["after"]), inside) if part)
        code = " ".join(re.sub(COMMENT, " ", found["code"]).split()).rstrip(";")
        code = re.sub(r"^static const \w+ |^enum \{ ?|,? ?\}$", "", code)
        if SOURCE.search(said) and re.search(r"= [^=]*\d", code):
            yield code, said


def subject_of(path):
    return next(name for name, starts in SUBJECTS if any(path.startswith(s) for s in starts))


def tables(root):
    """{subject: [(path, names and values, what the comments say)]}, in the order of SUBJECTS."""
    found = {name: [] for name, _ in SUBJECTS}
    for file in sorted([*(root / "src").rglob("*.[ch]"), *(root / "lab").rglob("*.[ch]")]):
        path = str(file.relative_to(root))
        found[subject_of(path)] += [(path, *c) for c in constants_of(file.read_text())]
    return found
