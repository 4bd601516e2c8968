"""The commands: what is typed becomes a call, what comes back becomes text."""
