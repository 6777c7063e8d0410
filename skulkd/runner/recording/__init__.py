"""Flight recorder entries and traces. Decides nothing."""
