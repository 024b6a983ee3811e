"""What a portable program takes along: the libraries beside it, and the licences of all that it
holds (lib/cmake/IsolossPortable.cmake)."""

import pathlib
import re
import subprocess

# Of the system's C library, which is never taken along: it belongs to the loader.
_GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|mvec|anl))\.so[.\d]*")
# Packages of Debian of which the program holds code: archives and headers.
_COMPILED_IN = ("libaec-dev", "libboost-dev", "libcli11-dev", "libeigen3-dev", "libfmt-dev",
                "libhdf5-dev", "libhwy-dev", "libjs-chart.js", "libtomlplusplus-dev",
                "libxxhash-dev", "nlohmann-json3-dev", "zlib1g-dev")


def looks_beside(program):
    return b"$ORIGIN/../lib" in program.read_bytes()


def libraries_of(program):
    """(name, file) of all libraries that it loads, but glibc's."""
    told = subprocess.run(["ldd", program], stdout=subprocess.PIPE, check=True).stdout.decode()
    missing = re.findall(r"^\t(\S+) => not found", told, re.MULTILINE)
    if missing:
        raise SystemExit(f"isoloss: {program} needs {', '.join(missing)}, not found here.")
    found = re.findall(r"^\t(\S+) => (/\S+)", told, re.MULTILINE)
    return [(name, pathlib.Path(file).resolve()) for name, file in sorted(found)
            if not _GLIBC.fullmatch(name)]


def _package_of(file):
    """Debian's package; None where dpkg does not know. Files of /lib may be known below /usr."""
    for path in (file, *([pathlib.Path(str(file)[4:])] if str(file).startswith("/usr/") else [])):
        try:
            told = subprocess.run(["dpkg-query", "--search", path], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, check=False).stdout.decode()
        except FileNotFoundError:
            return None
        if told:
            return told.split(":")[0]
    return None


def licences_of(libraries):
    """(name, text) of each package that the program holds code of, where Debian's texts lie."""
    packages = {*_COMPILED_IN, *(_package_of(file) for _, file in libraries)} - {None}
    for package in sorted(packages):
        text = pathlib.Path("/usr/share/doc") / package / "copyright"
        if text.is_file():
            yield f"{package}.txt", text.read_bytes()
