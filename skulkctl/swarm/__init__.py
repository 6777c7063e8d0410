"""The mswarm gateway node of a daemon: its pages, and the options of its set-up."""
