"""The table that the documentation uses as its example."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cellworth.data.io import local_path
from cellworth.data.tables import frame

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_FILES = {
    "train": ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    "test": ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
}
_COLUMNS = """age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,\
race,sex,capital_gain,capital_loss,hours_per_week,native_country,income"""


def load_adult(
    part: Literal["train", "test"] = "train", *, backend: str | None = None
) -> tuple[Any, NDArray[Any]]:
    """Load the census table "Adult" (UCI, CC BY 4.0): income above 50,000 dollars a year.

    It is downloaded once, into the folder that the environment variable ``CELLWORTH_DATA`` names
    (if it has ``adult_train.csv.gz`` or ``adult_test.csv.gz``, that is used) or the user's cache.

    Parameters
    ----------
    part : {"train", "test"}, default="train"
    backend : {"pandas", "polars", "pyarrow"}, default=None
        Data-frame library of X; None means the first that is installed.

    Returns
    -------
    X : data frame of shape (32561, 14), or (16281, 14) for the test part
        Numbers and strings; unknown cells hold "?", as in the original.
    y : array of shape (n_rows,)
        "<=50K" or ">50K".

    See Also
    --------
    cellworth.ShardedTable : a table in files.

    Examples
    --------
    >>> from cellworth.data import load_adult
    >>> X, y = load_adult("test")
    >>> X.shape, y[0]
    ((16281, 14), '<=50K')
    """
    import pyarrow.csv as pc

    if part not in _FILES:
        raise ValueError(f"part must be 'train' or 'test', got {part!r}.")
    # No missing values: "?" is a category.
    options = pc.ConvertOptions(null_values=[], strings_can_be_null=False)
    columns = pc.read_csv(io.BytesIO(_read_csv(part)), convert_options=options).to_pydict()
    y = np.array(columns.pop("income"), dtype=object)
    return frame(columns, backend), y


def _read_csv(part: str) -> bytes:
    folder = os.environ.get("CELLWORTH_DATA")
    ready = local_path(folder or "", "CELLWORTH_DATA") / f"adult_{part}.csv.gz"
    if folder and ready.is_file():
        return gzip.decompress(ready.read_bytes())
    try:
        import pooch
    except ImportError as error:
        raise ImportError("load_adult needs pooch; pip install 'cellworth[data]'.") from error
    name, sha256 = _FILES[part]
    file = pooch.retrieve(_URL + name, sha256, name, folder or pooch.os_cache("cellworth"))
    # The original has blanks after commas, a comment and, in the test part, periods after labels.
    lines = Path(file).read_text(encoding="ascii").splitlines()
    rows = [line.replace(", ", ",").rstrip(".") for line in lines if line and line[0] != "|"]
    return "\n".join([_COLUMNS, *rows]).encode()
