"""skulkd as a service of the machine: units for systemd, property lists for launchd."""
