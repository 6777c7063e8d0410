"""Tests of skulkctl."""
