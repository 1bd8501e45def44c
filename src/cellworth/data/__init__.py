"""Tables, labels, owners, the blocks that a table is cut into, and an example table.

Examples
--------
>>> from cellworth.data import Blocks
>>> blocks = Blocks.cut(["r0", "r1", "r2"], ["age", "pay"], row_groups=["a", "a", "b"])
>>> blocks.shape
(2, 2)
"""

from cellworth.data.blocks import Blocks
from cellworth.data.datasets import load_adult
from cellworth.data.owners import Owners
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.table_files import TextFormat

__all__ = [
    "Blocks",
    "Owners",
    "ShardedTable",
    "TextFormat",
    "load_adult",
]
