"""The contract: every JSON shape that leaves or enters a node. Knows pydantic, nothing else."""
