"""The mswarm gateway node: load telemetry, enrolment and jobs. Knows no HTTP server."""
