"""Timelines over time: frames from a daemon, recordings on disk. `verdict/` says what is wrong."""
