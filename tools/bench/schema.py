# SPDX-License-Identifier: BSD-3-Clause
"""Validates a value by a JSON Schema with the keywords that sluice-bench.schema.json uses."""

TYPES = {'object': dict, 'array': list, 'string': str, 'boolean': bool, 'null': type(None)}
KNOWN = {'$schema', 'title', 'type', 'properties', 'additionalProperties', 'required', 'items',
         'enum', 'minimum'}


def is_type(value, name):
    if name in ('number', 'integer'):
        kinds = int if name == 'integer' else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def object_problem(value, schema, where):
    named, others = schema.get('properties', {}), schema.get('additionalProperties', True)
    for name in schema.get('required', []):
        if name not in value:
            return f'{where}: no "{name}"'
    for name, member in value.items():
        inner = named.get(name, others)
        if inner is False:
            return f'{where}: unknown "{name}"'
        found = problem(member, inner, f'{where}.{name}') if isinstance(inner, dict) else None
        if found:
            return found
    return None


def problem(value, schema, where='file'):
    """Returns the first error as a line of text, or None."""
    assert not set(schema) - KNOWN, f'{where}: {set(schema) - KNOWN}'
    kinds = schema.get('type', [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_type(value, k) for k in kinds):
        return f'{where}: not {" or ".join(kinds)}'
    if 'enum' in schema and value not in schema['enum']:
        return f'{where}: {value!r} is not one of {", ".join(map(repr, schema["enum"]))}'
    if 'minimum' in schema and is_type(value, 'number') and not value >= schema['minimum']:
        return f'{where}: {value} is less than {schema["minimum"]}'
    if isinstance(value, dict):
        return object_problem(value, schema, where)
    if isinstance(value, list) and 'items' in schema:
        for i, item in enumerate(value):
            found = problem(item, schema['items'], f'{where}[{i}]')
            if found:
                return found
    return None
