"""Looking back and looking inside: event log, placement analysis, warnings."""
