"""Finds and runs the program isoloss."""

import functools
import os
import pathlib
import subprocess

from .version import VERSION

_PACKAGE = pathlib.Path(__file__).resolve().parent


class ProgramError(Exception):
    """The program gave no result. The text is its message.

    exit_code  2: wrong usage; 3: files that can't be read or compared; 5: an internal error; None:
               the program was not found, did not start, or is of another version
    """

    def __init__(self, message, exit_code=None):
        super().__init__(message)
        self.exit_code = exit_code


def _candidates():
    """The user's choice, or the programs of this package, of its clone and of PATH."""
    if os.environ.get("ISOLOSS_BINARY"):
        return [pathlib.Path(os.environ["ISOLOSS_BINARY"])]
    clone = _PACKAGE.parents[1]
    built = ("wheel", "release") if (clone / "CMakeLists.txt").is_file() else ()
    folders = [_PACKAGE / "bin", *(clone / "build" / preset / "bin" for preset in built),
               *filter(None, os.environ.get("PATH", "").split(os.pathsep))]
    return [file for file in (pathlib.Path(folder) / "isoloss" for folder in folders)
            if os.access(file, os.X_OK) and file.is_file() and not _is_script(file)]


def _is_script(file):
    """So is the command of this package, which would start itself."""
    with open(file, "rb") as opened:
        return opened.read(2) == b"#!"


def environment():
    """Of the program. If the user's choice is this package's command, it finds the program, not
    itself."""
    return {name: value for name, value in os.environ.items() if name != "ISOLOSS_BINARY"}


@functools.lru_cache
def _checked(file):
    try:
        told = subprocess.run([file, "--version"], stdout=subprocess.PIPE, check=True,
                              stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace",
                              env=environment()).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ProgramError(f"{file}: does not start: {error}. Install the package again, or name "
                           "another program in ISOLOSS_BINARY.") from error
    words = told.split()
    if words[:2] != ["isoloss", VERSION]:
        raise ProgramError(f"{file}: is `{' '.join(words[:2])[:60]}`, but this package is isoloss "
                           f"{VERSION}, and both must be of one version. Install them together, or "
                           "name another program in ISOLOSS_BINARY.")
    return str(file)


def find():
    """Path of the program: that of ISOLOSS_BINARY, else of this package or its clone, else of PATH.

    Errors   ProgramError if there is none, or it is of another version.
    """
    for file in _candidates():
        return _checked(file)
    raise ProgramError("the program isoloss is not found: neither this package nor PATH has one. "
                       "Install the package with `pip install .` in a clone, or name the program "
                       "in ISOLOSS_BINARY.")


def path_text(path):
    """A path as an argument that is no option.

    Errors   FileNotFoundError if nothing is there.
    """
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    os.stat(text)
    return os.path.join(".", text) if text.startswith("-") else text


def options_of(options, refused):
    """Options of the command line of keyword arguments: `min_seeds=3` is --min-seeds=3, True a
    flag, a list the option once for each entry; None and False leave it out."""
    words = []
    for name, value in options.items():
        if name in refused:
            raise TypeError(f"`{name}` is no option here: {refused[name]}")
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{option}={os.fspath(each) if isinstance(each, os.PathLike) else each}"
                      for each in values]
    return words


class Done:
    """What the program printed."""

    def __init__(self, done):
        self.exit_code = done.returncode
        self.text = done.stdout
        # Each of these lines begins with the program's name.
        self.notes = [line.removeprefix("isoloss: ") for line in done.stderr.splitlines()]

    def error(self):
        message = "\n".join(self.notes) or f"the program ended with exit code {self.exit_code}"
        if self.exit_code < 0:
            message = f"signal {-self.exit_code} ended the program. {message}"
        return ProgramError(message, self.exit_code)


def run(*words):
    """Runs the program to its end.

    Errors   ProgramError if it does not start.
    """
    try:
        # Pictures are drawn as on a terminal of today, whatever started Python.
        return Done(subprocess.run([find(), *words], stdin=subprocess.DEVNULL, check=False,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**environment(), "LC_ALL": "C.UTF-8"}, encoding="utf-8",
                                   errors="replace"))
    except (OSError, ValueError) as error:
        raise ProgramError(f"the program can't be run: {error}") from error
