"""Put a built site beside those of other versions: python docs/versions.py BUILT ALL VERSION.

ALL gets a folder for each version, such as ``v0.1.0`` and ``dev``, the pages of the newest release
(before the first one, of dev) and ``versions.json``, from which every page offers the others.
"""

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
DEV = "dev"


def add_version(built: Path, every: Path, version: str) -> None:
    """Copy the pages of one version; those of the newest release are also those of the site."""
    if version != DEV and not RELEASE.fullmatch(version):
        raise SystemExit(f"a version is {DEV} or like v0.1.0, got {version!r}")
    shutil.rmtree(every / version, ignore_errors=True)
    shutil.copytree(built, every / version)
    versions = _list_versions(every)
    if version == versions[0]:
        for old in every.iterdir():
            if old.name not in versions:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copytree(built, every, dirs_exist_ok=True)
    (every / "versions.json").write_text(json.dumps(_describe(versions), indent=1) + "\n")


def _list_versions(every: Path) -> list[str]:
    """Return releases, the newest first, then dev."""
    found = [RELEASE.fullmatch(folder.name) for folder in every.iterdir()]
    newest_first = sorted(filter(None, found), key=lambda match: [-int(n) for n in match.groups()])
    return [match[0] for match in newest_first] + [DEV] * (every / DEV).is_dir()


def _describe(versions: list[str]) -> list[dict[str, object]]:
    site = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["urls"]["Documentation"]
    newest = versions[0] if versions[0] != DEV else None
    return [
        {"name": version, "version": version, "url": f"{site}{version}/"}
        | ({"preferred": True} if version == newest else {})
        for version in versions
    ]


if __name__ == "__main__":
    add_version(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
