"""Applications: what a Valuation tells people to do."""

from cellworth.applications.suspects import suspect_cells
from cellworth.applications.unlikely import cell_suspicion

__all__ = ["cell_suspicion", "suspect_cells"]
