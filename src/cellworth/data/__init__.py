"""Tables, labels, owners and the blocks that a table is cut into: everything below the games."""

from cellworth.data.blocks import Blocks
from cellworth.data.owners import Owners
from cellworth.data.sharded_table import ShardedTable

__all__ = ["Blocks", "Owners", "ShardedTable"]
