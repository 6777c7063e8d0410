"""An incident as one HTML file: made from a capture, opened offline."""
