"""One model over several real daemons."""
