"""PyTorch's tests, from the source package of a Debian release."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

PACKAGE, RELEASE = "pytorch", "trixie"


class NoSources(Exception):
    """The machine has no apt, no Debian mirror, or no such source package."""


def mirror() -> tuple[str, str]:
    """Return the URI of a Debian mirror that apt is configured for, and the keyring that its packages are signed by.
    Raises ``NoSources``."""
    folder = Path("/etc/apt")
    files = sorted([*folder.glob("sources.list"), *folder.glob("sources.list.d/*")])
    texts = [path.read_text(encoding="utf-8") for path in files]
    for text in texts:
        for uri in re.findall(r"^(?:URIs:|deb(?:-src)?(?: \[[^]]*\])?)\s+(\S+)", text, re.MULTILINE):
            if re.search(r"/debian/?$", uri):
                key = re.search(r"(?:Signed-By:\s*|signed-by=)(\S+?)[\]\s]", text, re.IGNORECASE)
                return uri, key[1] if key else ""
    raise NoSources(
        "apt has no Debian mirror in /etc/apt: unpack PyTorch's folder test below --results by hand"
    )


def download(folder: Path, release: str = RELEASE) -> Path:
    """Return the folder `test` of PyTorch's sources below `folder`, downloaded by apt unless it is there.

    Nothing is installed, and apt's own lists are left alone. Raises ``NoSources``.
    """
    tests = folder / "test"
    if tests.exists():
        return tests
    if shutil.which("apt-get") is None:
        raise NoSources("there is no apt-get: unpack PyTorch's folder test below --results by hand")
    uri, key = mirror()
    apt = (folder / "apt").resolve()
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={key}] " if key else ""
    (apt / "sources.list").write_text(f"deb-src {signed}{uri} {release} main\n", encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    for command in (("update",), ("source", "--download-only", "--tar-only", PACKAGE)):
        if subprocess.run(["apt-get", "-qq", *options, *command], cwd=apt, check=False).returncode:
            raise NoSources(f"apt-get {' '.join(command)} failed for the sources of {release}")
    (archive,) = apt.glob(f"{PACKAGE}_*.orig.tar.*")
    extract = ["tar", "xf", str(archive), "-C", str(folder), "--strip-components=1", "--wildcards"]
    subprocess.run([*extract, "--no-wildcards-match-slash", "*/test"], check=True)
    return tests
