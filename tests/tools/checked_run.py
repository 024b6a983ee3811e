"""Programs that tests start and that must succeed."""

import subprocess


def run(*command, folder):
    """What it prints on standard output when it is started in `folder`."""
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=folder, capture_output=True, encoding="utf-8", timeout=300)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
    return result.stdout
