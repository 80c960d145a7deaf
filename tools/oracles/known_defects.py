"""Reads src/arithmetic/known/defects.def: what is known to be wrong in releases of an SDK, and which models of golden/found show it."""
import collections
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[2] / "src/arithmetic/known/defects.def"
TEXT = r'"((?:[^"\\]|\\.)*)"'

Defect = collections.namedtuple("Defect", "layer sdks archs what remedy")
Found = collections.namedtuple("Found", "condition models anchor what effects")


def rows(macro):
    """The text of each row of a macro, without its name."""
    return re.findall(rf"^{macro}\((.*?)\)$", TABLE.read_text(), re.MULTILINE | re.DOTALL)


def defects():
    """{condition: its Defect}, in the order of the table."""
    found = {}
    for row in rows("ND_DEFECT"):
        fields = dict(re.findall(rf"\.(\w+) = {TEXT}", row))
        sdks = [fields[name] for name in ("older_sdk", "sdk") if name in fields]
        layer = re.search(rf"\),\n    {TEXT}, (?:NOT_)?PREDICTED,\n", row)[1]
        found[row.split(",")[0]] = Defect(layer, sdks, fields["archs"], fields["what"], fields["remedy"])
    return found


def found():
    """What was found, with the models that show it. Effects: on gen1, on gen3 and gen4, on gen5, with the older SDK and the newer."""
    listed = []
    for row in rows("ND_FOUND"):
        models, anchor, what, *effects = re.findall(TEXT, row)
        listed.append(Found(row.split(",")[0], models.split(), anchor, what, effects))
    return listed
