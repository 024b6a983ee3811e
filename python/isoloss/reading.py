"""What files of isoloss and logs of other programs hold, as NumPy arrays: isoloss.read."""

import collections.abc
import contextlib
import importlib
import json
import os
import re

from . import program

# The newest version of each kind of file that this package knows.
KINDS = {
    "schema_version": ("run log", 7),
    "operations_version": ("file of operations", 1),
    "dump_version": ("dump of tensors", None),
    "probe_schema_version": ("probe log", None),
    "ensemble_schema_version": ("null ensemble", None),
}
_MOST_VALUES = 1 << 28  # of a dataset
_MOST_INFLATED = 1032  # times, by deflate
_FILTERS = {1, 2, 3}  # deflate, shuffle, Fletcher32
# Names that columns of all logs share: of those of isoloss, and of quantities of other programs.
_ALIASES = {"loss": "loss_nats", "tokens": "tokens_seen"}
_QUANTITIES = {"loss": "loss", "eval loss": "loss", "gradient norm": "grad_norm",
               "learning rate": "lr", "tokens seen": "tokens"}


class ReadError(Exception):
    """A file that isoloss.read does not take."""


def _module(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"isoloss.read needs {name}, which is not installed. Install it: "
                          "pip install numpy h5py (the extra `read`)") from error


def _plain(value):
    """A number or text of Python, where it is one."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if getattr(value, "shape", None) == () else value


class Group(collections.abc.Mapping):
    """A group of an HDF5 file: its datasets as NumPy arrays and its groups, by name. A dataset is
    read when it is asked for.

    attributes    of the group, as numbers and texts of Python
    units         of its datasets, by name
    descriptions  what its datasets mean, by name
    """

    def __init__(self, file, place="/"):
        self._file = file
        self._place = place
        self._read = {}
        self._entries, self.units, self.descriptions = {}, {}, {}
        with file.opened(place) as opened:
            group = opened[place]
            self.attributes = {name: _plain(value) for name, value in group.attrs.items()}
            for name in group:
                entry = file.entry(group, name)
                self._entries[name] = getattr(entry, "shape", None)
                for key, kept in (("unit", self.units), ("description", self.descriptions)):
                    if key in entry.attrs:
                        kept[name] = _plain(entry.attrs[key])

    def __getitem__(self, name):
        name = name if name in self._entries else _ALIASES.get(name, name)
        if name not in self._entries:
            raise KeyError(f"{self._place} has no `{name}`, but {', '.join(self) or 'nothing'}")
        if name not in self._read:
            place = f"{self._place.rstrip('/')}/{name}"
            self._read[name] = (Group(self._file, place) if self._entries[name] is None
                                else self._file.array(place))
        return self._read[name]

    def __iter__(self):
        return iter(self._entries)

    def __len__(self):
        return len(self._entries)

    def __contains__(self, name):
        return name in self._entries or _ALIASES.get(name) in self._entries

    def about(self, name):
        """The attributes of a dataset or group."""
        with self._file.opened(self._place) as opened:
            entry = self._file.entry(opened[self._place], name)
            return {key: _plain(value) for key, value in entry.attrs.items()}

    def __repr__(self):
        lines = [f"{self._place} of {self._file.path}"]
        for name, shape in self._entries.items():
            extent = "group" if shape is None else str(list(shape))
            unit = self.units.get(name, "")
            lines.append(f"  {name:30} {extent:16} {'' if unit == '1' else unit:8} "
                         f"{self.descriptions.get(name, '')}".rstrip())
        return "\n".join(lines)


class NamedColumns(collections.abc.Mapping):
    """A group whose columns have a value for each of its names, such as /tensors: by name, its
    columns as NumPy arrays with a row for each step. What was not logged at a step is NaN.

        log.tensors["layers.0.attention.wq_activation"]["sqnr_db"]

    columns  the whole columns, [steps, names, ...], as a Group; `step` is their index
    """

    def __init__(self, columns):
        self.columns = columns
        self._places = {name: place for place, name in enumerate(columns["names"])}

    def __getitem__(self, name):
        if name not in self._places:
            raise KeyError(f"no `{name}`, but {len(self)} others, such as "
                           f"{', '.join(list(self)[:3]) or 'none'}")
        return _OfName(self.columns, name, self._places[name])

    def __iter__(self):
        return iter(self._places)

    def __len__(self):
        return len(self._places)

    def __repr__(self):
        return f"{len(self)} names: {', '.join(list(self)[:3])}, ...\n{self.columns!r}"


class _OfName(collections.abc.Mapping):
    """The columns of one name."""

    def __init__(self, columns, name, place):
        self._columns = columns
        self._name = name
        self._place = place

    def __getitem__(self, column):
        if column == "names":
            raise KeyError(column)
        values = self._columns[column]
        return values if column == "step" else values[:, self._place]

    def __iter__(self):
        return (column for column in self._columns if column != "names")

    def __len__(self):
        return len(self._columns) - 1

    def __repr__(self):
        return f"{self._name}: {', '.join(self)}"


class Operation(Group):
    """An operation of a trainer: its tensors by name, and `type`, `module` and `attributes`."""

    @property
    def type(self):
        return self.attributes["type"]

    @property
    def module(self):
        return self.attributes["module"]


class Operations(collections.abc.Sequence):
    """The recorded operations of one step and rank (docs/check-tensors.md), in the order of
    computation.

    attributes  of the file: run, step, rank, ...
    """

    def __init__(self, file):
        self.path = file.path
        root = Group(file)
        self.attributes = root.attributes
        self._operations = [Operation(file, f"/operations/{place}")
                            for place in sorted(root["operations"])]

    def __getitem__(self, place):
        return self._operations[place]

    def __len__(self):
        return len(self._operations)

    def select(self, type=None, module=None):  # pylint: disable=redefined-builtin
        """Those of a type, of a module, or both."""
        return [each for each in self
                if type in (None, each.type) and module in (None, each.module)]

    def __repr__(self):
        told = ", ".join(f"{name} {self.attributes[name]}" for name in ("run", "step", "rank")
                         if name in self.attributes)
        return "\n".join([f"{len(self)} operations of {told} ({self.path})",
                          *(f"  {place:4} {each.type:15} {each.module:40} {', '.join(each)}"
                            for place, each in enumerate(self))])


class Log:
    """A training: what its log holds.

    path         of the file
    attributes   of the run: arm, seed, recipe, complete, digests, ... (docs/run-log.md)
    steps        by column an array with a value for each step: step, loss, grad_norm, lr, tokens
    evaluations  likewise, of held-out text
    tensors      statistics and digests by name of the tensor
    parameters   gradient norms and updates by name of the parameter
    groups       every group of the log by its name
    """

    def __init__(self, path, attributes, groups):
        self.path = path
        self.attributes = attributes
        self.groups = groups

    def _group(self, name):
        return self.groups.get(name, {})

    def _named(self, name):
        return NamedColumns(self.groups[name]) if name in self.groups and \
            "names" in self.groups[name] else {}

    def __fspath__(self):
        """So that isoloss.gate and isoloss.compare take it for its file."""
        return self.path

    @property
    def steps(self):
        return self._group("steps")

    @property
    def evaluations(self):
        return self._group("eval")

    @property
    def tensors(self):
        return self._named("tensors")

    @property
    def parameters(self):
        return self._named("parameters")

    @property
    def events(self):
        return self._group("events")

    def __repr__(self):
        known = {name: self.attributes[name] for name in
                 ("arm", "seed", "recipe", "format", "complete", "tool_version")
                 if self.attributes.get(name) not in (None, "")}
        lines = [f"{self.path}: {', '.join(f'{name} {value}' for name, value in known.items())}"]
        steps = self.steps
        if len(steps.get("step", ())):
            number = steps["step"]
            loss = f", loss {steps['loss'][0]:.4f} to {steps['loss'][-1]:.4f}" \
                if "loss" in steps else ""
            lines.append(f"  {len(number)} steps, {number[0]} to {number[-1]}{loss}")
        lines += [f"  {name}: {', '.join(group)}" for name, group in self.groups.items()]
        return "\n".join(lines)


class _Hdf5:
    """An HDF5 file of which nothing else is opened and no more is read than it can hold."""

    def __init__(self, path):
        self.path = path
        self.bytes = os.path.getsize(path)
        self._h5py = _module("h5py")
        _module("numpy")

    @contextlib.contextmanager
    def opened(self, place):
        """While `place` is read. Whatever HDF5 says of a damaged file is a ReadError."""
        try:
            with self._h5py.File(self.path, "r") as file:
                yield file
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            raise ReadError(f"{self.path}: {place} can't be read: {error}. The file is damaged, or "
                            "still being written.") from error

    def _refuse(self, place, what, rule):
        raise ReadError(f"{self.path}: {place} {what}, but {rule}. Whoever made the file made "
                        "no file of isoloss.")

    def entry(self, group, name):
        if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
            self._refuse(f"{group.name}/{name}", "is a link", "a file holds its data itself")
        return group[name]

    def array(self, place):
        """The values of a dataset; texts as str."""
        with self.opened(place) as opened:
            dataset = self.entry(opened[os.path.dirname(place)], os.path.basename(place))
            self._check(place, dataset)
            is_text = self._h5py.check_string_dtype(dataset.dtype)
            return dataset.asstr()[()] if is_text else dataset[()]

    def _check(self, place, dataset):
        layout = dataset.id.get_create_plist()
        if dataset.is_virtual or dataset.external:
            self._refuse(place, "lies in other files", "a file holds its data itself")
        filters = {layout.get_filter(number)[0] for number in range(layout.get_nfilters())}
        if not filters <= _FILTERS:
            self._refuse(place, f"has the filters {sorted(filters)}",
                         f"only {sorted(_FILTERS)} are known")
        most = min(_MOST_VALUES, self.bytes * (_MOST_INFLATED if 1 in filters else 1))
        if dataset.size > most:
            self._refuse(place, f"has {dataset.size} values", f"it may have {most} here")


def _check_seal(path):
    """Run logs end with their digest, which tells damage. It needs xxhash; without that package,
    the length alone is checked."""
    length = os.path.getsize(path) - 24
    with open(path, "rb") as file:
        file.seek(max(0, length))
        seal = file.read()
        if seal[:8] != b"isolossT" or int.from_bytes(seal[8:16], "little") != length:
            raise ReadError(f"{path}: has no seal at its end, so it was cut off or changed. Make "
                            "it again.")
        try:
            digest = importlib.import_module("xxhash").xxh3_64()
        except ImportError:
            return
        file.seek(0)
        for begin in range(0, length, 1 << 20):
            digest.update(file.read(min(1 << 20, length - begin)))
    if digest.intdigest() != int.from_bytes(seal[16:], "little"):
        raise ReadError(f"{path}: has another digest than the seal at its end, so it is damaged or "
                        "was changed. Make it again.")


def _read_hdf5(path):
    file = _Hdf5(path)
    root = Group(file)
    kinds = [key for key in KINDS if key in root.attributes]
    if len(kinds) != 1:
        raise ReadError(f"{path}: has {len(kinds)} of the attributes {', '.join(KINDS)}, but a file "
                        "of isoloss has one. Read it with h5py.")
    kind, newest = KINDS[kinds[0]]
    version = root.attributes[kinds[0]]
    if newest is not None and not version <= newest:
        raise ReadError(f"{path}: is a {kind} of version {version}, but this isoloss reads "
                        f"versions up to {newest}. Install a newer one.")
    if kind == "file of operations":
        return Operations(file)
    if kind != "run log":
        return root
    # Older versions had no seal.
    if version >= 3:
        _check_seal(path)
    return Log(path, root.attributes, {name: group for name, group in root.items()
                                       if isinstance(group, Group)})


def _columns(series, numpy):
    """At every step that one of the series has; NaN where another has none."""
    steps = numpy.array(sorted({step for each in series for step in each["step"]}), numpy.int64)
    columns = {"step": steps}
    for each in series:
        values = numpy.full(len(steps), numpy.nan)
        # Those that are not finite are texts: "nan", "inf", "-inf".
        values[numpy.searchsorted(steps, each["step"])] = [float(value) for value in each["value"]]
        columns[each["name"]] = values
        if each["counts"] and each["quantity"] in _QUANTITIES:
            columns.setdefault(_QUANTITIES[each["quantity"]], values)
    return columns


def _read_foreign(path, run, options):
    numpy = _module("numpy")
    words = program.options_of(options, {})
    done = program.run("import", program.path_text(path), *words, "--json")
    if done.exit_code != 0:
        raise done.error()
    runs = json.loads(done.text)["logs"][0]["runs"]
    names = [each["name"] for each in runs]
    chosen = runs if run is None else [each for each in runs if each["name"] == run]
    if len(chosen) != 1:
        raise ReadError(f"{path}: holds {len(runs)} runs ({', '.join(names)}), of which one is "
                        "read. Name it: run=...")
    found = chosen[0]
    attributes = {name: value for name, value in found.items() if name != "series"}
    parts = {"steps": [], "eval": []}
    for series in found["series"]:
        parts["eval" if series["quantity"] == "eval loss" else "steps"].append(series)
    return Log(path, attributes, {name: _columns(series, numpy) for name, series in parts.items()
                                  if series})


def read(path, run=None, **options):
    """What a file holds: a Log of a run log of isoloss or its recorder, and of every log that
    `isoloss import` reads; Operations of a file of operations; a Group of every other HDF5 file
    of isoloss.

        log = isoloss.read("run.h5")
        log.steps["loss"], log.tensors["lm_head_weight"]["l2_norm"], log.attributes["seed"]

    run      which one, where a log of another program holds several
    options  of `isoloss import`: step="iter", loss="train_loss"

    Errors   ReadError if a file is damaged, newer than this package or none of isoloss;
             ProgramError with the program's message about logs of other programs; ImportError
             without numpy or h5py
    """
    text = program.path_text(path)
    if os.path.isfile(text):
        with open(text, "rb") as file:
            begin = file.read(8)
        if begin == b"\x89HDF\r\n\x1a\n":
            return _read_hdf5(text)
        if re.search(r"\.journal$", text):
            raise ReadError(f"{text}: is the journal of a run that has not ended. `isoloss show` "
                            "reads it; `isoloss recover` makes a log of a recorder's.")
    return _read_foreign(text, run, options)


__all__ = ["Group", "Log", "NamedColumns", "Operation", "Operations", "ReadError", "read"]
