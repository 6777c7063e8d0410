"""The man pages: finding them and showing them without `man`."""
