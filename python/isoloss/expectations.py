"""What is configured, in place of what modules and optimizers say of themselves."""

import fnmatch

import torch

from . import operations


class Expectations:
    """Datasets and attributes of operations: of all of a type, and by patterns of
    names."""

    def __init__(self, expected):
        self._of_all, self._patterns = {}, {}
        for kind, values in (expected or {}).items():
            operations.check(kind, values)
            for key, value in values.items():
                found = self._patterns if isinstance(value, dict) else self._of_all
                found.setdefault(kind, {})[key] = value

    def of(self, kind):
        """Of all operations of that type."""
        return self._of_all.get(kind, {})

    def apply(self, step_operations):
        """In place of what operations say. The first pattern that matches counts."""
        for operation in step_operations:
            for key, value in self.of(operation.kind).items():
                _set(operation, key, value)
            for key, values in self._patterns.get(operation.kind, {}).items():
                for pattern, value in values.items():
                    if fnmatch.fnmatchcase(operation.module, pattern):
                        _set(operation, key, value)
                        break


def _set(operation, key, value):
    if key in operations.TYPES[operation.kind][0]:
        operation.keep(key, torch.as_tensor(value))
    else:
        operation.attributes[key] = value
