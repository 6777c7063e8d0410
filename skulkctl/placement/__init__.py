"""Placed models: what is placed where, how far it is, what the planner would do, and waiting."""
