"""Writes a wheel (PEP 427)."""

import base64
import hashlib
import re
import zipfile


def metadata_of(project, version, root):
    """The file METADATA of the table [project] of pyproject.toml."""
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}",
             f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}",
             f"License: {project['license']['text']}"]
    for extra, needed in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {each}; extra == \"{extra}\"" for each in needed]
    text = (root / project["readme"]).read_text(encoding="utf-8")
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", text])


def information_of(metadata, tag):
    """Names and contents of the files about the package, but RECORD."""
    return {"METADATA": metadata.encode(),
            "WHEEL": ("Wheel-Version: 1.0\nGenerator: isoloss_backend\n"
                      f"Root-Is-Purelib: false\nTag: {tag}\n").encode(),
            "entry_points.txt": b"[console_scripts]\nisoloss = isoloss.__main__:main\n"}


def name_of(metadata):
    """The package's name and version, as names of files have them."""
    return "-".join(re.search(r"Name: (.*)\nVersion: (.*)\n", metadata).groups())


class Wheel:
    """Files are added within `with`; equal files make equal wheels."""

    def __init__(self, folder, metadata, tag):
        self.name = f"{name_of(metadata)}-{tag}.whl"
        self._info = f"{name_of(metadata)}.dist-info"
        self._file = zipfile.ZipFile(folder / self.name, "w", zipfile.ZIP_DEFLATED)
        self._record = []
        for name, content in information_of(metadata, tag).items():
            self.add(f"{self._info}/{name}", content)

    def _write(self, path, content, mode=0o100644):
        info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self._file.writestr(info, content)

    def add(self, path, content, executable=False):
        self._write(path, content, 0o100755 if executable else 0o100644)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self._record.append(f"{path},sha256={digest},{len(content)}\n")

    def add_licence(self, name, content):
        self.add(f"{self._info}/licenses/{name}", content)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            record = f"{self._info}/RECORD"
            self._write(record, "".join(self._record) + f"{record},,\n")
        self._file.close()
