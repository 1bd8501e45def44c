"""Examples that load a data set find it in the local folder."""

import os
from pathlib import Path

os.environ.setdefault("CELLWORTH_DATA", str(Path(__file__).parents[1].parent / "shared" / "data"))
