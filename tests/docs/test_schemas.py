"""The schemas of docs/reference/schemas: one for each kind of document, and none that accepts anything.

From every schema a document is made that it accepts. Then each required member is left out, a member that nobody knows is
added to each object, and each value is replaced by one of a different type: the schema must refuse every one of these.
"""
import json
import pathlib
import re
import unittest

import jsonschema

import support
import json_documents # support says where it is

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A text for each pattern of the schemas.
TEXTS = ["ND-204", "all-zero", "4..7"]


def kinds_of_the_program():
    table = (ROOT / "include/npudiff/core/document_kinds.def").read_text()
    return re.findall(r'^ND_DOCUMENT\((\w+), "(\w+)"\)$', table, re.M)


def example_of(schema, root):
    """A value that the schema accepts: with all members, and one item in each list."""
    if "$ref" in schema:
        return example_of(root["$defs"][schema["$ref"].split("/")[-1]], root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], root)
    kind = schema.get("type", "null")
    kind = kind if isinstance(kind, str) else kind[0]
    if kind == "object":
        return example_of_object(schema, root)
    if kind == "array":
        return [example_of(schema["items"], root) for _ in range(schema.get("minItems", 1))]
    if kind == "string":
        return next(text for text in TEXTS if re.search(schema.get("pattern", ""), text))
    return {"integer": schema.get("minimum", 1), "number": 0.5, "boolean": True, "null": None}[kind]


def example_of_object(schema, root):
    members = {name: example_of(member, root) for name, member in schema.get("properties", {}).items()}
    if isinstance(schema.get("additionalProperties"), dict):
        pattern = schema.get("propertyNames", {}).get("pattern", "")
        name = next(text for text in TEXTS if re.search(pattern, text))
        members[name] = example_of(schema["additionalProperties"], root)
    return {**{name: "" for name in schema.get("required", [])}, **members} # of an open object some are not described


def resolve(schema, root):
    """The schema of an object or a list, where this is one or may be null."""
    while "$ref" in schema or "anyOf" in schema:
        schema = root["$defs"][schema["$ref"].split("/")[-1]] if "$ref" in schema else schema["anyOf"][0]
    return schema


def changes(value, schema, root, where="$"):
    """(what was done, the changed value, the schema that must refuse it) for each place of the document."""
    part = resolve(schema, root)
    if isinstance(value, dict) and "$comment" not in part:
        for name in part.get("required", []):
            yield f"{where}: without {name}", {key: value[key] for key in value if key != name}, schema
        if part.get("additionalProperties") is False:
            yield f"{where}: one more", {**value, "nobody knows it": 1}, schema
        for name, member in value.items():
            of_member = part.get("properties", {}).get(name) or part["additionalProperties"]
            if "$comment" not in of_member:
                wrong = 0.5 if isinstance(member, dict) else {"wrong": 1}
                yield f"{where}.{name}: {wrong}", {**value, name: wrong}, schema
                yield from changes(member, of_member, root, f"{where}.{name}")
    elif isinstance(value, list) and value:
        wrong = 0.5 if isinstance(value[0], dict) else {"wrong": 1}
        yield f"{where}[0]: {wrong}", [wrong, *value[1:]], schema
        yield from changes(value[0], part["items"], root, f"{where}[0]")


def parts_of(schema):
    """Every schema within a schema."""
    yield schema
    for name in ("properties", "$defs"):
        for part in schema.get(name, {}).values():
            yield from parts_of(part)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from parts_of(schema[name])
    for part in schema.get("anyOf", []):
        yield from parts_of(part)


class Schemas(unittest.TestCase):
    def setUp(self):
        self.schemas = {path.stem: json.loads(path.read_text()) for path in json_documents.SCHEMAS.glob("*.json")}

    def test_every_kind_has_its_schema_and_a_line_in_the_table(self):
        table = kinds_of_the_program()
        self.assertGreater(len(table), 40)
        self.assertEqual([name.lower() for name, _ in table], [word for _, word in table])
        self.assertEqual({word for _, word in table}, set(self.schemas))
        page = (ROOT / "docs/reference/json.md").read_text()
        self.assertEqual(set(re.findall(r"\(schemas/(\w+)\.json\)", page)), set(self.schemas))
        for kind, schema in self.schemas.items():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.assertEqual(f"npudiff:{kind}", schema["$id"])
            self.assertEqual(kind, schema["properties"]["kind"]["const"])
            self.assertLessEqual({"kind", "format", "npudiff"}, set(schema["required"]))
            self.assertTrue(schema["title"], kind)

    def test_the_report_reads_members_that_are_described(self):
        known = {name for schema in self.schemas.values() for part in parts_of(schema) for name in part.get("properties", {})}
        known |= {"images", "png"} # of samples: no document of their own
        n = 0
        for path in (ROOT / "src/report/html").glob("*.c"):
            for name in re.findall(r'nd_doc_(?:get|text|find|number|is|index)\([^"();]*"(\w+)"', path.read_text()):
                self.assertIn(name, known, path.name)
                n += 1
        self.assertGreater(n, 150)

    def test_every_member_is_described_and_closed(self):
        for kind, schema in self.schemas.items():
            for part in parts_of(schema):
                for name, member in part.get("properties", {}).items():
                    self.assertTrue(member.get("description", "").endswith((".", "…", "'")), (kind, name, member))
                if part.get("type") == "object" and "$comment" not in part:
                    self.assertIn("additionalProperties", part, (kind, part))

    def test_what_is_changed_is_refused(self):
        n = 0
        for kind, schema in sorted(self.schemas.items()):
            validator = jsonschema.Draft202012Validator(schema)
            whole = example_of(schema, schema)
            self.assertEqual([], [error.message for error in validator.iter_errors(whole)], kind)
            for what, changed, part in changes(whole, schema, schema):
                self.assertFalse(validator.evolve(schema=part).is_valid(changed), f"{kind}: {what}")
                n += 1
        self.assertGreater(n, 4000)

    def test_a_document_within_a_document_is_validated(self):
        def run(compare):
            return json.dumps({"kind": "run", "format": 2, "npudiff": "1", "exit_code": 0, "compare": compare})
        error = {"kind": "error", "format": 2, "npudiff": "1", "error": {"id": "ND-1", "message": "", "object": None}}
        self.assertEqual(("run", []), json_documents.check(run(error)))
        del error["error"]["object"]
        self.assertEqual(1, len(json_documents.check(run(error))[1]))

    def test_no_document_and_an_unknown_kind_are_problems(self):
        for text in ("", "{", "[]", '{"kind": "nothing"}', '{"kind": ["error"]}', '{"kind": "error", "n": NaN}'):
            self.assertEqual(1, len(json_documents.check(text)[1]), text)


if __name__ == "__main__":
    support.main()
