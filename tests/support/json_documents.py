"""JSON documents that npudiff prints, against the schemas of docs/reference/schemas, by a validator that is not npudiff's."""
import itertools
import json
import pathlib

import jsonschema

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"
_validators = {}


def kinds():
    """The kinds of documents that there are."""
    return {path.stem for path in SCHEMAS.glob("*.json")}


def _validator(kind):
    if kind not in _validators:
        schema = json.loads((SCHEMAS / f"{kind}.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        _validators[kind] = jsonschema.Draft202012Validator(schema)
    return _validators[kind]


def _refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def _check_document(document):
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in kinds():
        return None, [f"no schema for kind {kind!r}: {str(document)[:200]}"]
    problems = [f"{kind}: {error.json_path}: {error.message[:300]}" for error in
                itertools.islice(_validator(kind).iter_errors(document), 5)]
    for part in document.values() if kind == "run" else ():
        if isinstance(part, dict): # the document of a command that 'run' has run
            problems += _check_document(part)[1]
    return kind, problems


def check(text):
    """(kind, problems) of what a command printed with --json. Problems are texts; none: the document is valid."""
    try:
        document = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return None, [f"no JSON: {error}: {text[:200]!r}"]
    return _check_document(document)
