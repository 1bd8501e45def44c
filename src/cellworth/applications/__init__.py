"""Applications: what a Valuation tells people to do."""

__all__: list[str] = []
