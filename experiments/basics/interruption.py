"""The error that a signal to end the program raises."""


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP has come. As with KeyboardInterrupt, only the outermost level catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
