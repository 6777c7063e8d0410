"""The terminal screens: feed (asks) → presenter (pure) → widget (draws) → screen (keys).

Only feeds touch the network, only widgets and screens know Textual, so everything in between is
tested as text.
"""
