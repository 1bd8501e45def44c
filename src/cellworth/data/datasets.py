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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cellworth.data.io import local_path, write_atomically
from cellworth.data.tables import frame

__all__ = ["fetch_adult", "fetch_table", "load_adult", "load_table"]

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


class _Home(NamedTuple):
    """Where a table comes from, the sha256 of the CSV file made of it, and its columns."""

    address: str
    sha256: str
    target: str = ""
    left_out: str = ""
    """Column that is neither a feature nor the target."""
    header: str = ""
    """Names of the columns, if the file has none."""
    renamed: tuple[str, str] = ("", "")


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_GITHUB = "https://raw.githubusercontent.com/"
# Files of this repository are large, and this address leads to where they are stored.
_PMLB = (
    "https://github.com/EpistasisLab/pmlb/raw/0820182add20998ed3f88b30efd273107286c695/datasets/"
)
_HOMES = {
    "breast_cancer_wisconsin_original": _Home(
        f"{_UCI}breast-cancer-wisconsin/breast-cancer-wisconsin.data",
        "04321d55c1c0d1d61f527552a65b29cd6c1e3f7a5a933e32111c7cc1147d3822",
        "class",
        "sample_code_number",
        "sample_code_number,clump_thickness,uniformity_of_cell_size,uniformity_of_cell_shape,"
        "marginal_adhesion,single_epithelial_cell_size,bare_nuclei,bland_chromatin,normal_nucleoli,"
        "mitoses,class",
    ),
    "credit_card_default": _Home(
        f"{_GITHUB}kevin-shu/NTNU-107-2_ML_final_assignment/"
        "3a71f1741cc92db1d27012d7f46d19b83872b355/data/UCI_Credit_Card.csv",
        "af6aa9d50511471c11fedd691155d36b5f2c81baa778b274118976ad5e750d59",
        "default_payment_next_month",
        "ID",
        renamed=("default.payment.next.month", "default_payment_next_month"),
    ),
    "electricity": _Home(
        f"{_GITHUB}blablahaha/concept-drift/b8457bf57cf5f07a33adcbd777c4dcb2a37d8240/"
        "data/elecNormNew.csv",
        "371ea0992c2c50bd9f63102dc5b7e1d486aa3203de2ec2eed12c5a05fe8cca1a",
        "class",
        header="date,day,period,nswprice,nswdemand,vicprice,vicdemand,transfer,class",
    ),
    "heart": _Home(
        f"{_GITHUB}zhangmengling/subtle_discrimination_testing/"
        "458d42328c2d9fbb9c88393f5f2be315c4ff2d53/dataset/heart.csv",
        "9dfd7fbc614e833ac8c86806a74657a3380f4f9d1ad0a3266551af95e6b039da",
        "target",
        renamed=("AHD", "target"),
    ),
    "2dplanes": _Home(
        f"{_PMLB}215_2dplanes/215_2dplanes.tsv.gz",
        "b0a0f6bb37eb889405a5f7ed2c2876cc735a45d41e339160bac9337d50b65b77",
        "binaryClass",
        "target",
    ),
    "fried": _Home(
        f"{_PMLB}564_fried/564_fried.tsv.gz",
        "e633b12f4d837c768e7ff374968f1bca503ad2b502cea3910b7b62faf9b46e75",
        "binaryClass",
        "target",
    ),
    "pol": _Home(
        f"{_PMLB}201_pol/201_pol.tsv.gz",
        "2c9a12259357796a5d8e2b703a3e06b4c275651f7a0f6220c397d5289ba4f4d1",
        "binaryClass",
        "target",
    ),
}
# Tables with real errors, each as it was and corrected; they have no target and are kept as is.
_RAHA = {
    "beers_clean": "373227df59ad197e154dd5149125789e415019535c7223355e9486ee1b3b93de",
    "beers_dirty": "7110bf4931a9445a1675e544d6c996817c739136239f8a2b02e088c7ec0a1f68",
    "flights_clean": "0acfcfd8985b06fdd363965c9e8d9522c43e7589a93d79ae7dc311e1c37fdf3b",
    "flights_dirty": "1b5c1afa10aa0e7c20fd7e14d05c56772715b2771aa0f5fa67ed1709e1eecd46",
    "hospital_clean": "ea3ee44998455c0b491750c348509de176c758a3bbf58e4530c0a136bb248b4b",
    "hospital_dirty": "dbc5575b915fe8b5e0ac6dc6172f38ba91e611fdb76d09a8f4a81cb7ea9925ac",
    "rayyan_clean": "23159f43c0706782388ed8957ad0c74eb7b88bc98f34d65bd49296e186d4673f",
    "rayyan_dirty": "7e25e6db262b0c72ca2d9735d5959599cf5a582e1c705459507c7b45d0d1d174",
}
_HOMES |= {
    f"raha_{name}": _Home(
        f"{_GITHUB}BigDaMa/raha/master/datasets/{name.replace('_', '/')}.csv", sha256
    )
    for name, sha256 in _RAHA.items()
}


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
    return _fetch(table_folder(folder) / f"adult_{part}.csv.gz", _HOME + name, sha256, _as_csv)


def load_table(
    name: str, *, folder: str | os.PathLike[str] | None = None, backend: str | None = None
) -> tuple[Any, NDArray[Any]]:
    """Load a public table by name, as the experiments of the documentation use it.

    Parameters
    ----------
    name : {"2dplanes", "breast_cancer_wisconsin_original", "credit_card_default", "electricity", \
            "fried", "heart", "pol"}
        The file without its ending.
    folder : path, default=None
        As in :func:`load_adult`.
    backend : {"pandas", "polars", "pyarrow"}, default=None
        Data-frame library of X; None means the first that is installed.

    Returns
    -------
    X : data frame of shape (n_rows, n_columns)
        Without identifiers, and without the number that the labels were made of. Missing cells are
        missing values.
    y : array of shape (n_rows,)
        The labels.

    See Also
    --------
    fetch_table : The file alone; also tables with real errors.
    load_adult : The census table.

    Examples
    --------
    >>> from cellworth.data import load_table
    >>> X, y = load_table("breast_cancer_wisconsin_original")
    >>> X.shape, len(y)
    ((699, 9), 699)
    """
    import pyarrow.csv

    home = _HOMES.get(name)
    if home is None or not home.target:
        raise ValueError(f"name must be one of {', '.join(_names(labeled=True))}, got {name!r}.")
    content = gzip.decompress(fetch_table(name, folder=folder).read_bytes())
    columns = pyarrow.csv.read_csv(io.BytesIO(content)).to_pydict()
    y = np.array(columns.pop(home.target))
    columns.pop(home.left_out, None)
    return frame(columns, backend), y


def fetch_table(name: str, *, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of a public table as a CSV file; download it if it is missing.

    Parameters
    ----------
    name : str
        One of those of :func:`load_table`, or a table with real errors (Mahdavi and others, 2019):
        ``raha_``, then beers, flights, hospital or rayyan, then ``_dirty`` or ``_clean``.
    folder : path, default=None
        As in :func:`load_adult`.

    Returns
    -------
    pathlib.Path
        The name with ``.csv.gz``, with its sha256 checked.

    See Also
    --------
    load_table : Its features and labels.

    Examples
    --------
    >>> from cellworth.data import fetch_table
    >>> fetch_table("raha_beers_dirty").name
    'raha_beers_dirty.csv.gz'
    """
    if name not in _HOMES:
        raise ValueError(f"name must be one of {', '.join(_names())}, got {name!r}.")
    home = _HOMES[name]

    def convert(original: bytes) -> bytes:
        try:
            return _normalize(original, home) if home.target else original
        except (ValueError, OSError, EOFError, zlib.error):
            # Another file may hold anything; its hash will differ.
            return original

    return _fetch(table_folder(folder) / f"{name}.csv.gz", home.address, home.sha256, convert)


def _names(*, labeled: bool = False) -> list[str]:
    return sorted(name for name, home in _HOMES.items() if home.target or not labeled)


def _fetch(path: Path, address: str, sha256: str, convert: Callable[[bytes], bytes]) -> Path:
    if path.is_file():
        _check_same(_unzip(path), sha256, path, "delete it to download it again")
        return path
    content = convert(_download(address, path))
    _check_same(content, sha256, address, "try again, or get the file elsewhere")
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as sink:
        sink.write(gzip.compress(content, mtime=0))
    return path


def table_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Return the folder of downloaded tables."""
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
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        # The scheme is fixed above; no user input gets into the address.
        with urlopen(address, timeout=_SECONDS_TO_WAIT) as answer:  # noqa: S310
            return bytes(answer.read())
    except OSError as error:
        if isinstance(error, HTTPError):
            error.close()
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


def _normalize(original: bytes, home: _Home) -> bytes:
    """Return a CSV file with a header, whole columns as integers, other numbers at their shortest.

    Files of PMLB are packed, have tabs, and numbers of single precision written as double; labels
    are made of the target.
    """
    packed = original[:2] == b"\x1f\x8b"
    text = (gzip.decompress(original) if packed else original).decode("ascii", errors="replace")
    lines = [home.header, *text.splitlines()] if home.header else text.splitlines()
    names, *rows = (line.replace("\t", ",").split(",") for line in lines if line)
    names = [home.renamed[1] if name == home.renamed[0] else name for name in names]
    columns = [_shortest(column, single=packed) for column in zip(*rows, strict=False)]
    if packed:
        numbers = np.array(columns[names.index("target")], dtype=float)
        names.append("binaryClass")
        columns.append(["P" if below else "N" for below in numbers < numbers.mean()])
    made = (",".join(cells) for cells in [names, *zip(*columns, strict=True)])
    return "".join(f"{line}\n" for line in made).encode()


def _shortest(column: Sequence[str], *, single: bool) -> list[str]:
    """Return numbers as pandas writes them; "?" is a missing value, other words stay."""
    known = ["" if cell == "?" else cell for cell in column]
    try:
        numbers = [float(cell) for cell in known if cell]
    except ValueError:
        return known
    if single:
        numbers = [float(str(np.float32(number))) for number in numbers]
    integers = all(number.is_integer() for number in numbers)
    shown = iter([str(int(number)) if integers else repr(number) for number in numbers])
    return [next(shown) if cell else "" for cell in known]
