"""Tables, labels, owners, the blocks that a table is cut into, and an example table.

Examples
--------
>>> from cellworth.data import Owners
>>> Owners([[1, 2], [3, 4]]).assign("bank", columns="x0").n_cells_of("bank")
2
"""

from cellworth.data.datasets import load_adult
from cellworth.data.owners import Owners
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.table_files import TextFormat

__all__ = [
    "Owners",
    "ShardedTable",
    "TextFormat",
    "load_adult",
]
