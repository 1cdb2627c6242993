"""How bytes cross the wide area: sans-IO transports that own no socket, no clock and no randomness."""
