"""Values beside the schemas of /openapi.json, made strict: whether they fit, what of a schema they have shown, and whether a schema would
notice a member more or less (check_answers.py)."""

import copy

import jsonschema

OPEN = ("tools", "tool_choice")  # members of ResponseObject that clients have sent, given back


def closed(value):
    """The same schema, whose objects have the members that are described and no others; of a text that is JSON the schema of its value."""
    if isinstance(value, list):
        return [closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "contentSchema" in value:
        return closed(value["contentSchema"])
    value = {name: closed(one) for name, one in value.items()}
    if isinstance(value.get("properties"), dict) and "additionalProperties" not in value:
        value["additionalProperties"] = False
    return value


def strict(document):
    """The same document, whose schemas are closed but for what clients may have sent."""
    out = closed(document)
    members = {name: document["components"]["schemas"]["ResponseObject"]["properties"][name] for name in OPEN}
    out["components"]["schemas"]["ResponseObject"]["properties"].update(members)
    return out


class Schemas:
    """The schemas of a document. A part of one is named by the component that it is in, and by its place there."""

    def __init__(self, document):
        self.components = document["components"]["schemas"]
        self.shown, self.mutated = set(), set()

    def validator(self, schema):
        return jsonschema.Draft202012Validator({"components": {"schemas": self.components}, "allOf": [schema]})

    def fits(self, schema, value):
        return self.validator(schema).is_valid(value)

    def follow(self, name, schema):
        """A schema and its name, in the place of a reference to it."""
        while "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            schema = self.components[name]
        return name, schema

    def parts(self, name, schema, seen):
        """Names of all that an answer may show: members, alternatives, words."""
        name, schema = self.follow(name, schema)
        if name in seen or name.removeprefix("ResponseObject.") in OPEN:
            return
        seen.add(name)
        for i, one in enumerate(schema.get("anyOf", [])):
            yield f"{name}|{i}"
            yield from self.parts(f"{name}|{i}", one, seen)
        for member, one in schema.get("properties", {}).items():
            yield f"{name}.{member}"
            yield from self.parts(f"{name}.{member}", one, seen)
        for word in schema.get("enum", []):
            yield f"{name}={word}"
        if isinstance(schema.get("items"), dict):
            yield from self.parts(f"{name}[]", schema["items"], seen)
        if isinstance(schema.get("additionalProperties"), dict):
            yield from self.parts(f"{name}{{}}", schema["additionalProperties"], seen)

    def show(self, name, schema, value):
        """Remembers what a value shows of the schema that it fits. Yields the objects in it with the names and the schemas of their own."""
        name, schema = self.follow(name, schema)
        if name.removeprefix("ResponseObject.") in OPEN:
            return
        for i, one in enumerate(schema.get("anyOf", [])):
            if self.fits(one, value):
                self.shown.add(f"{name}|{i}")
                yield from self.show(f"{name}|{i}", one, value)
        if value in schema.get("enum", []):
            self.shown.add(f"{name}={value}")
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            for one in value:
                yield from self.show(f"{name}[]", schema["items"], one)
        if isinstance(value, dict):
            if "properties" in schema:
                yield name, schema, value
            for member, one in value.items():
                if member in schema.get("properties", {}):
                    self.shown.add(f"{name}.{member}")
                    yield from self.show(f"{name}.{member}", schema["properties"][member], one)
                elif isinstance(schema.get("additionalProperties"), dict):
                    yield from self.show(f"{name}{{}}", schema["additionalProperties"], one)

    def check(self, name, schema, value):
        """Raises unless the value fits, and the same value with a member more or less in any of its objects does not."""
        errors = sorted(self.validator(schema).iter_errors(value), key=lambda error: len(error.absolute_path))
        if errors:
            error = jsonschema.exceptions.best_match(errors)
            raise AssertionError(f"{name}: {error.json_path}: {error.message[:1000]}")
        for part, own, found in list(self.show(name, schema, value)):
            if part not in self.mutated:
                self.mutated.add(part)
                self.check_mutations(f"{name}: {part}", schema, value, own, found)

    def check_mutations(self, name, schema, value, own, found):
        kept = copy.copy(found)
        found["not described"] = 1
        if self.fits(schema, value):
            raise AssertionError(f"{name}: a member that is not described is passed over")
        del found["not described"]
        for member in own.get("required", []):
            del found[member]
            if self.fits(schema, value):
                raise AssertionError(f"{name}: {member!r} is not missed")
            found.update(kept)
