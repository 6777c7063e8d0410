"""From items and messages to text: formats, tables, units, progress, and the two output streams."""
