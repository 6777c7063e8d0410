"""What happened in the cluster and what its processes wrote: events and log lines."""
