"""Print the lower bounds of a pyproject.toml's dependencies, with those of its extras."""

import re
import sys
import tomllib
from itertools import chain
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
named = [extras[name] for name in ("dask", "plots", "ray", "remote")]
for dependency in chain(project["dependencies"], *named):
    print(re.sub(r">=", "==", dependency, count=1))  # noqa: T201
