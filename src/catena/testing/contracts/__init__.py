"""One suite for each interface; every backend runs it unchanged."""
