"""The contract, checked on live daemons."""
