"""Owners of any set of cells."""

import numpy as np


def assign_cells(owners, name, cells):
    """Assign marked cells to an owner: some rows of each column."""
    for j in np.flatnonzero(cells.any(axis=0)):
        owners = owners.assign(name, rows=cells[:, j], columns=owners.table.names[[j]])
    return owners
