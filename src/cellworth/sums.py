"""OwnerSums: what the cells of each owner are worth together, as a run observed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellworth.counts import Floats
from cellworth.moments import Moments


@dataclass(frozen=True, eq=False)
class OwnerSums:
    """Sums over the cells of owners, seen task by task: cells are correlated.

    Parameters
    ----------
    names : tuple of str
        The owners.
    keys : tuple of str
        Fingerprint of what each of them holds.
    moments : Moments of shape (n_owners,)
    validation : array of shape (n_owners,) or None
        Errors that come from the choice of validation rows.
    """

    names: tuple[str, ...]
    keys: tuple[str, ...]
    moments: Moments
    validation: Floats | None

    def merge(self, other: OwnerSums) -> OwnerSums:
        """Sums of two independent runs; both tell the same validation error."""
        return replace(self, moments=self.moments.merge(other.moments))

    def to_plain(self) -> dict[str, Any]:
        """Lists and numbers, for a manifest."""
        return {
            "names": list(self.names),
            "keys": list(self.keys),
            "count": self.moments.count.tolist(),
            "mean": self.moments.mean.tolist(),
            "spread": self.moments.spread.tolist(),
            "validation": None if self.validation is None else self.validation.tolist(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> OwnerSums:
        """Read what :meth:`to_plain` gave."""
        figures = (np.array(plain[name], dtype=np.float64) for name in ("mean", "spread"))
        validation = plain["validation"]
        return cls(
            tuple(plain["names"]),
            tuple(plain["keys"]),
            Moments(np.array(plain["count"], dtype=np.int64), *figures),
            None if validation is None else np.array(validation, dtype=np.float64),
        )
