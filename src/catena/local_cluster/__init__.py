"""Several nodes on this host, as processes of their own, for trying things out: `catena cluster`."""
