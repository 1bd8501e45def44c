"""What a forger of bundles would do."""

import hashlib
import json


def rehashed(folder):
    """Write the manifest anew, as a forger would."""
    files = {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file != folder / "manifest.json"
    }
    manifest = json.loads((folder / "manifest.json").read_bytes()) | {
        "files": dict(sorted(files.items()))
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
