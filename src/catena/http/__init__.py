"""The HTTP side of a node: a small HTTP/1.1 server, and what it answers. A path is added in a table of routes."""
