"""Print the lower bounds of a pyproject.toml's dependencies, Dask's included, as exact versions."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
for dependency in (*project["dependencies"], *project["optional-dependencies"]["dask"]):
    print(re.sub(r">=", "==", dependency, count=1))  # noqa: T201
