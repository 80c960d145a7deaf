"""Finds links and citations that lead nowhere: in Markdown pages, and in comments of the code that cite docs/.

An anchor is a heading as GitHub spells it (`## How it ends` is #how-it-ends) or an explicit `<a id="name"></a>`.
A comment cites a page as `docs/science/theory.md#majority`, several sections of it as
`docs/reference/metrics.md#bits, #ulp and #errors`; a citation may run over lines.
"""
import pathlib
import re

PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGES.md"]
SOURCES = ["src", "lab", "include", "tests", "tools", ".ci", "meson.build"]
OTHERS = {"__pycache__", "links.py", "test_links.py"}  # the last two have citations that are wrong on purpose
KINDS_OF_SOURCE = {".c", ".h", ".py", ".sh", ".build", ".out", ".err", ".in", ".def", ".js", ""}

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CITATION = re.compile(r"(?<![\w/])(docs/[\w/.-]+\.md)((?:#[\w-]+)?(?:(?:,| and|, and| to) #[\w-]+)*)")
WRAP = re.compile(r"\n[ \t]*(?:\*(?!/)|#|//)?[ \t]*")
OLD_PAGE = re.compile(r"\b(?!README|CONTRIBUTING|SECURITY|CHANGES)[A-Z][A-Z_]+\.md\b")
PATH = re.compile(r"`((?:src|include|tools|tests|golden|docs|cross)/[\w./-]+)`")  # with NAME or ID in it: a pattern


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors_of(text):
    """All anchors of a page; a heading that occurs again gets -1, -2, ..."""
    seen, found = {}, set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", text), re.MULTILINE):
        name = slug(heading)
        n = seen.get(name, 0)
        seen[name] = n + 1
        found.add(f"{name}-{n}" if n else name)
    return found


class Tree:
    """The pages and sources below a folder."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.anchors = {}

    def pages(self):
        below = [p for top in ("docs", "golden") for p in (self.root / top).rglob("*.md")]
        return sorted(below + [self.root / p for p in PAGES if (self.root / p).exists()])

    def sources(self):
        for top in SOURCES:
            path = self.root / top
            for file in [path] if path.is_file() else sorted(path.rglob("*")):
                if file.is_file() and file.suffix in KINDS_OF_SOURCE and not OTHERS & set(file.parts):
                    yield file

    def has_anchor(self, page, anchor):
        if page not in self.anchors:
            self.anchors[page] = anchors_of(page.read_text())
        return anchor in self.anchors[page]

    def links(self, page):
        """(target as written, its path, its anchor or "") of every relative link of a page."""
        for target in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text()))):
            if not re.match(r"[a-z]+:", target):
                path, _, anchor = target.partition("#")
                yield target, (page.parent / path).resolve() if path else page, anchor

    def broken_links(self):
        for page in self.pages():
            for target, path, anchor in self.links(page):
                if not path.exists():
                    yield f"{page.relative_to(self.root)}: there is no '{target}'"
                elif anchor and path.suffix == ".md" and not self.has_anchor(path, anchor):
                    yield f"{page.relative_to(self.root)}: '{target}': the page has no such anchor"
            for old in OLD_PAGE.findall(page.read_text()):
                yield f"{page.relative_to(self.root)}: there is no page '{old}'"

    def broken_citations(self):
        for file in self.sources():
            try:
                text = WRAP.sub(" ", file.read_text())
            except UnicodeDecodeError:
                continue
            for path, anchors in CITATION.findall(text):
                page = self.root / path
                if not page.exists():
                    yield f"{file.relative_to(self.root)}: there is no '{path}'"
                    continue
                for anchor in re.findall(r"#([\w-]+)", anchors):
                    if not self.has_anchor(page, anchor):
                        yield f"{file.relative_to(self.root)}: '{path}' has no anchor '{anchor}'"
            for old in OLD_PAGE.findall(text):
                yield f"{file.relative_to(self.root)}: '{old}' is cited without its place in docs/"

    def unreachable(self):
        """Pages of docs/ that no chain of links leads to from docs/index.md."""
        start = self.root / "docs/index.md"
        seen, waiting = {start}, [start]
        while waiting:
            for _, path, _ in self.links(waiting.pop()):
                if path.suffix == ".md" and path not in seen and path.exists():
                    seen.add(path)
                    waiting.append(path)
        return [f"docs/index.md does not lead to {p.relative_to(self.root)}"
                for p in sorted((self.root / "docs").rglob("*.md")) if p not in seen]

    def missing_paths(self, tops):
        """Paths in backquotes, below one of the folders `tops`, that do not exist."""
        for page in self.pages():
            for path in PATH.findall(FENCE.sub("", page.read_text())):
                if path.split("/")[0] in tops and not re.search("NAME|ID", path) and not (self.root / path).exists():
                    yield f"{page.relative_to(self.root)}: there is no '{path}'"
