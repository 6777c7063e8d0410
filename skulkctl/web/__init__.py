"""The application in a browser: who may open it, and the server. `textual-serve` does the rest."""
