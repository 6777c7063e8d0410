"""Where a model may go: memory arithmetic, the planner and its refusals. Pure; knows only wire."""
