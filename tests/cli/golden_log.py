"""Goldens as another program would have made them: changed, yet in order."""

import contextlib
import re
import subprocess

import h5py

import sealed_log
from program import BINARY


def _message(folder):
    """What is wrong with the folder. A second one that is not there keeps the check from
    computing anything if that is nothing."""
    return subprocess.run(
        [BINARY, "golden", "check", "--draft", folder, folder / "none"], encoding="utf-8",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, check=False).stderr


def _replace(path, old, new):
    text = path.read_text()
    if old not in text:
        raise AssertionError(f"no {old} in {path}")
    path.write_text(text.replace(old, new))


def _hex(value):
    """As printf's %a: no zeros at the end of the mantissa."""
    if value != value:
        return "nan"
    mantissa, exponent = float(value).hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}"


def _cells(path):
    """How the line of each step begins and ends in the text."""
    with h5py.File(path, "r") as log:
        return [(f"\n{i + 1:>5}  {loss:>10.6f}  {_hex(loss):<22}  {_hex(norm):<22}",
                 f"{sealed_log.xxh3(row.tobytes()):016x}")
                for i, (loss, norm, row) in enumerate(zip(
                    log["steps/loss_nats"][()], log["steps/grad_norm"][()],
                    log["tensors/digest"][()]))]


@contextlib.contextmanager
def forged(folder, name):
    """The golden's log, open for changes of its losses, gradient norms, tensors
    and whatever its text does not show. Then its text and history are made to fit,
    by the digests that the program asks for."""
    path = folder / f"{name}.h5"
    twin = folder / f"{name}.txt"
    before = _cells(path)
    with sealed_log.edited_log(path) as log:
        yield log
    for (start, tensors), (new_start, new_tensors) in zip(before, _cells(path)):
        text = twin.read_text()
        line = text[text.index(start):].split("\n")[1]
        new = line.replace(start[1:], new_start[1:]).replace(tensors, new_tensors)
        twin.write_text(text.replace(line, new))
    found = re.search(r"content has digest (\w+), but \S+ names (\w+)", _message(folder))
    if found:
        _replace(folder / "history.toml", f'after = "{found[2]}"', f'after = "{found[1]}"')
        _replace(twin, found[2], found[1])
        mend_chain(folder)


def mend_chain(folder):
    """Makes the digests of a changed history fit."""
    for _ in range(100):
        found = re.search(r"has chain (\w+), but .* give (\w+)\.", _message(folder))
        if not found:
            return
        _replace(folder / "history.toml", f'chain = "{found[1]}"', f'chain = "{found[2]}"')
