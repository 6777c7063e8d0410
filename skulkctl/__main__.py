"""`python -m skulkctl` is the same program as `skulkctl`."""

from skulkctl.main import run

if __name__ == "__main__":
    run()
