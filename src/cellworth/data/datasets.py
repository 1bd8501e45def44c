"""Small public tables for examples and tutorials.

Examples
--------
>>> from cellworth.data import load_adult
>>> X, y = load_adult()
>>> X.shape
(32561, 14)
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.io import local_path, write_atomically
from cellworth.data.tables import frame

__all__ = ["fetch_adult", "load_adult"]

Part = Literal["train", "test"]
_HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"


# Files of the repository, and the sha256 of the CSV files made from them.
_FILES = {
    "train": ("adult.data", "3b8a6abd697a6623ef2ccbffc3e2802e167e7fdaa853003d3bd557b0ce7f5d2a"),
    "test": ("adult.test", "eb6e9f02496bed4137b1a069b8af64b90eb534ba46143948667034dddef9abd9"),
}
_COLUMNS = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hours_per_week,native_country,income"
)
_SECONDS_TO_WAIT = 30.0


def load_adult(
    part: Part = "train",
    *,
    folder: str | os.PathLike[str] | None = None,
    backend: str | None = None,
) -> tuple[Any, NDArray[Any]]:
    """Load the census table "Adult" (Becker and Kohavi, 1996): income above 50,000 dollars a year.

    It has 32,561 training rows, 16,281 test rows and 14 columns of numbers and strings. Unknown
    cells hold "?", as in the original. License: CC BY 4.0, UCI Machine Learning Repository.

    Parameters
    ----------
    part : {"train", "test"}, default="train"
    folder : path, default=None
        Folder of the file; it is downloaded there if missing. None means the environment variable
        ``CELLWORTH_DATA``, or else a folder in the user's cache.
    backend : {"pandas", "polars", "pyarrow"}, default=None
        Data-frame library of X; None means the first that is installed.

    Returns
    -------
    X : data frame of shape (n_rows, 14)
    y : array of shape (n_rows,)
        "<=50K" or ">50K".

    See Also
    --------
    fetch_adult

    Examples
    --------
    >>> from cellworth.data import load_adult
    >>> X, y = load_adult("test")
    >>> X.shape, y[0]
    ((16281, 14), '<=50K')
    """
    import pyarrow.csv

    content = gzip.decompress(fetch_adult(part, folder=folder).read_bytes())
    # No missing values: "?" is a category.
    options = pyarrow.csv.ConvertOptions(null_values=[], strings_can_be_null=False)
    columns = pyarrow.csv.read_csv(io.BytesIO(content), convert_options=options).to_pydict()
    y = np.array(columns.pop("income"), dtype=object)
    return frame(columns, backend), y


def fetch_adult(part: Part = "train", *, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the census table as a CSV file; download it if it is missing.

    Parameters
    ----------
    part : {"train", "test"}, default="train"
    folder : path, default=None
        As in :func:`load_adult`.

    Returns
    -------
    pathlib.Path
        ``adult_train.csv.gz`` or ``adult_test.csv.gz``, with its sha256 checked.

    See Also
    --------
    load_adult

    Examples
    --------
    >>> from cellworth.data import fetch_adult
    >>> fetch_adult("test").name
    'adult_test.csv.gz'
    """
    if part not in get_args(Part):
        raise ValueError(f"part must be one of {', '.join(get_args(Part))}, got {part!r}.")
    name, sha256 = _FILES[part]
    path = _folder(folder) / f"adult_{part}.csv.gz"
    if path.is_file():
        _check_same(_unzip(path), sha256, path, "delete it to download it again")
        return path
    content = _as_csv(_download(_HOME + name, path))
    _check_same(content, sha256, _HOME + name, "try again, or get the file elsewhere")
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as sink:
        sink.write(gzip.compress(content, mtime=0))
    return path


def _folder(folder: str | os.PathLike[str] | None) -> Path:
    if folder is not None:
        return local_path(folder, "folder")
    if os.environ.get("CELLWORTH_DATA"):
        return local_path(os.environ["CELLWORTH_DATA"], "CELLWORTH_DATA")
    cache = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "cellworth"


def _unzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        # A damaged file fails the check of its sha256.
        return b""


def _download(address: str, path: Path) -> bytes:
    # This package is imported by all others, and few of their users download anything.
    from urllib.request import urlopen

    try:
        # The scheme is fixed above; no user input gets into the address.
        with urlopen(address, timeout=_SECONDS_TO_WAIT) as answer:  # noqa: S310
            return bytes(answer.read())
    except OSError as error:
        raise OSError(
            f"{address} could not be downloaded ({error}); put {path.name} into {path.parent}, or "
            "pass the folder that has it."
        ) from error


def _check_same(content: bytes, sha256: str, source: object, advice: str) -> None:
    came = hashlib.sha256(content).hexdigest()
    if came != sha256:
        raise ValueError(
            f"{source} is not the file that was expected: its sha256 is {came[:12]}... instead of "
            f"{sha256[:12]}...; {advice}."
        )


def _as_csv(original: bytes) -> bytes:
    """Add a header; drop blanks after commas, comment lines and periods after labels."""
    # Another file may hold anything; its hash will differ.
    lines = original.decode("ascii", errors="replace").splitlines()
    rows = [line.replace(", ", ",").rstrip(".") for line in lines if line and line[0] != "|"]
    return "".join(f"{row}\n" for row in [_COLUMNS, *rows]).encode()
