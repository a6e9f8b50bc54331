"""What a node tells of itself: as JSON, as Prometheus reads it, and what it costs."""
