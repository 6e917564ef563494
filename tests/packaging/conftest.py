"""What the packaging tests share: the repository's root and its files."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's root."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def tracked_files(root: Path) -> Callable[..., list[Path]]:
    """Return a function from git's patterns to the files git tracks, or would with `git add`.

    Its paths are relative to the root. Links are left out: what they lead to is listed itself.
    """

    def listed(*patterns: str) -> list[Path]:
        # The clone may belong to another user than the one who tests it (root in a container).
        command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
        listing = subprocess.run(
            [*command, "--exclude-standard", "--", *patterns],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        paths = {Path(name) for name in listing.split("\0") if name}
        return sorted(path for path in paths if (root / path).is_file() and not (root / path).is_symlink())

    return listed
