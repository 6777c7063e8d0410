"""Generation requests: parameters, choice of an instance, dispatch, relay to other nodes."""
