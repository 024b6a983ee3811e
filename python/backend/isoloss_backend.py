"""Builds the Python package of isoloss with its program: what pip and other frontends call (PEP
517, PEP 660). It needs the standard library, and what the program is compiled with.

Settings (pip install . --config-settings NAME=VALUE):
  program  file of the program: it is packed, and nothing is compiled
"""

import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile

import portable
from archive import Wheel, information_of, metadata_of, name_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/isoloss"
# Which an sdist leaves out: nothing of it is needed to build or to read.
LEFT_OUT = ("golden/", "tests/")


def version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"(?m)^project\(isoloss VERSION ([\d.]+)", text)[1]


def project():
    """The table of pyproject.toml."""
    try:
        import tomllib
    except ImportError:
        refuse(f"Python {sys.version.split()[0]} builds it, but 3.11 or newer is needed. The wheel "
               "that a newer one builds (`pip wheel .`) runs on 3.9, too.")
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def refuse(message):
    """Ends the build, without the trace of this file."""
    raise SystemExit(f"isoloss: {message}")


def remedy():
    """For what the compile misses; it names the packages of Debian 12."""
    listed = (ROOT / "tools/packages.txt").read_text(encoding="utf-8")
    packages = re.search(r"# section: build\n(.*?)\n\n", listed, re.DOTALL)[1].split()
    return ("Install what is missing with `tools/dev/install_packages pip` (Debian 12: "
            f"apt-get install {' '.join(packages)}), and try again.")


def check_tools():
    missing = [tool for tool in ("cmake", "ninja", "pkg-config") if not shutil.which(tool)]
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++")):
        missing.append("a C++ compiler")
    if missing:
        refuse(f"{', '.join(missing)} not found, but the program is compiled with cmake, ninja, "
               f"pkg-config and a C++ compiler. {remedy()}")


def build_folder():
    build = ROOT / "build/wheel"
    try:
        build.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=build):
            return build
    except OSError as error:
        refuse(f"{build}: {error.strerror}, but the program is compiled there. Copy the sources to "
               "a folder of yours, and try again.")


def fresh_option(build):
    """CMake refuses a folder that was moved, since it holds the paths of where it was."""
    cache = build / "CMakeCache.txt"
    home = f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n"
    moved = cache.exists() and home not in cache.read_text(encoding="utf-8")
    return ["--fresh"] if moved else []


def built_program():
    """Compiles the program, in a folder of its own. What is there already serves."""
    check_tools()
    build = build_folder()
    for step, command, advice in (
            ("configure", ["cmake", "--preset", "wheel", *fresh_option(build)], remedy()),
            ("compile", ["cmake", "--build", build, "--target", "isoloss",
                         "--parallel", str(len(os.sched_getaffinity(0)))],
             "The compiler's message stands above.")):
        print(f"isoloss: {' '.join(map(str, command))}", flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            refuse(f"can't {step} the program (above). {advice}")
    return build / "bin/isoloss"


def chosen_program(settings):
    settings = settings or {}
    unknown = [name for name in settings if name != "program"]
    if unknown:
        refuse(f"`{unknown[0]}` is no setting; there is `program`, a file.")
    if "program" not in settings:
        return built_program()
    program = pathlib.Path(settings["program"]).resolve()
    if not os.access(program, os.X_OK) or not program.is_file():
        refuse(f"{program}: is no program, but the setting `program` names it. Name one.")
    done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True)
    told = done.stdout.decode().splitlines()[0]
    if told.split()[:2] != ["isoloss", version()]:
        refuse(f"{program}: is `{told}`, but the package is isoloss {version()}. Build it again.")
    return program


def tag():
    """The program runs on this platform, with any Python."""
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def metadata():
    return metadata_of(project(), version(), ROOT)


def new_wheel(folder):
    return Wheel(pathlib.Path(folder), metadata(), tag())


def add_program(wheel, program):
    wheel.add("isoloss/bin/isoloss", program.read_bytes(), executable=True)
    libraries = portable.libraries_of(program) if portable.looks_beside(program) else []
    for name, file in libraries:
        wheel.add(f"isoloss/lib/{name}", file.read_bytes())
    wheel.add_licence("LICENSE", (ROOT / "LICENSE").read_bytes())
    for name, text in portable.licences_of(libraries):
        wheel.add_licence(name, text)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / f"{name_of(metadata())}.dist-info"
    folder.mkdir()
    for name, content in information_of(metadata(), tag()).items():
        (folder / name).write_bytes(content)
    return folder.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    program = chosen_program(config_settings)
    with new_wheel(wheel_directory) as wheel:
        for file in sorted(PACKAGE.rglob("*")):
            name = file.relative_to(PACKAGE.parent)
            if file.is_file() and file.suffix in (".py", ".json") and file.name != "version.py":
                wheel.add(name.as_posix(), file.read_bytes())
        stated = f'"""Made by the build."""\n\nVERSION = "{version()}"\n'
        wheel.add("isoloss/version.py", stated.encode())
        add_program(wheel, program)
    return wheel.name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package of this clone, which finds the program in build/wheel."""
    program = chosen_program(config_settings)
    link = ROOT / "build/wheel/bin/isoloss"
    if link.resolve() != program:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(program)
    with new_wheel(wheel_directory) as wheel:
        wheel.add("isoloss.pth", f"{PACKAGE.parent}\n".encode())
    return wheel.name


def build_sdist(sdist_directory, config_settings=None):
    """Of what git has, and nothing else."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, check=False)
    if listed.returncode != 0:
        refuse(f"{ROOT}: git lists no files ({listed.stderr.decode().strip()}), but an archive of "
               "the sources holds what git has. Make it in a clone.")
    name = f"isoloss-{version()}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for path in sorted(filter(None, listed.stdout.decode().split("\0"))):
            if not path.startswith(LEFT_OUT) and (ROOT / path).exists():
                archive.add(ROOT / path, f"{name}/{path}", recursive=False)
        told = metadata().encode()
        entry = tarfile.TarInfo(f"{name}/PKG-INFO")
        entry.size = len(told)
        archive.addfile(entry, io.BytesIO(told))
    return f"{name}.tar.gz"
