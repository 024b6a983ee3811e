"""What is configured, in place of what modules and optimizers say of themselves."""

import fnmatch

from . import operations


class Expectations:
    """Attributes of operations: of all of a type, and by patterns of names.

    of_all   by type
    """

    def __init__(self, expected):
        self.of_all, self._patterns = {}, {}
        for kind, values in (expected or {}).items():
            operations.check(kind, values)
            for key, value in values.items():
                found = self._patterns if isinstance(value, dict) else self.of_all
                found.setdefault(kind, {})[key] = value

    def of(self, kind):
        """Attributes of all operations of that type."""
        return self.of_all.get(kind, {})

    def apply_patterns(self, step_operations):
        """Sets attributes by names; the first pattern that matches counts."""
        for operation in step_operations:
            for key, values in self._patterns.get(operation.kind, {}).items():
                for pattern, value in values.items():
                    if fnmatch.fnmatchcase(operation.module, pattern):
                        operation.attributes[key] = value
                        break
