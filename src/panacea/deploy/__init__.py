"""A real federation: the simulator's own loop on the server, one function at every client, and a transport between."""
