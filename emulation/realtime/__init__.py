"""Real time: a clock that also serves sockets, and figures for how late something was."""
