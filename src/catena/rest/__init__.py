"""The log over HTTP and JSON: produce, consume, fence; and what describes it, to programs and to people."""
