"""Makes the seed files of fuzz_schema: schemas with every keyword, and bytes that choose a text.

    python3 tests/fuzz/make_schema_corpus.py tests/fuzz/corpus"""
import json
import pathlib
import sys

out = pathlib.Path(sys.argv[1]) / "fuzz_schema"
out.mkdir(parents=True, exist_ok=True)
SCHEMAS = {
    "person": {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
               "required": ["name"], "additionalProperties": False},
    "numbers": {"anyOf": [{"multipleOf": 0.25, "exclusiveMinimum": -3.5}, {"enum": [1, 2.5, 1e3, -0.0]}, {"type": "integer", "not": {"multipleOf": 7}}]},
    "strings": {"type": ["string", "null"], "pattern": "^(?!x)[a-f\\d]{2,}$", "maxLength": 9, "not": {"enum": ["ab", "abc"]}},
    "arrays": {"prefixItems": [{"const": 1}], "items": {"$ref": "#"}, "contains": {"type": "integer"}, "minContains": 1, "maxContains": 2, "minItems": 1},
    "unique": {"type": "array", "items": {"enum": ["a", "b", 3, None, True]}, "uniqueItems": True, "minItems": 2},
    "objects": {"patternProperties": {"^a": {"type": "null"}, "b$": {"type": "boolean"}}, "propertyNames": {"maxLength": 3}, "minProperties": 1,
                "maxProperties": 3, "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["ab"]}}, "type": "object"},
    "logic": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "if": {"required": ["c"]}, "then": {"maxProperties": 2}, "else": {"minProperties": 1}},
    "unevaluated": {"allOf": [{"properties": {"a": True}}], "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, True], "unevaluatedProperties": False,
                    "prefixItems": [True], "unevaluatedItems": {"type": "string"}},
    "dynamic": {"$id": "http://a/b", "$dynamicAnchor": "n", "$defs": {"t": {"$id": "t", "$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}}, "$ref": "t", "minItems": 1},
    "draft4": {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://a/", "definitions": {"x": {"id": "#x", "minimum": 1, "exclusiveMinimum": True}},
               "items": [{"$ref": "#x"}], "additionalItems": False, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
}
FORMATS = ["date", "time", "date-time", "duration", "email", "idn-email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference", "iri",
           "iri-reference", "uri-template", "json-pointer", "relative-json-pointer"]  # fmt: skip
for name, schema in [*SCHEMAS.items(), *((f, {"type": "string", "format": f}) for f in FORMATS)]:
    (out / name).write_bytes(json.dumps(schema).encode() + b"\0\x08" + b'{"name":[1234567890"]},- ' * 2)
