"""The errors that end a command with one line, and its exit status."""

FAILED, WRONG_COMMAND, INTERRUPTED = 1, 2, 130  # exit statuses


class UserError(Exception):
    """The message is one line for the user, and `status` the exit status of the command that it ends."""

    status = WRONG_COMMAND

    def __init__(self, line: str, status: int | None = None) -> None:
        super().__init__(line)
        self.status = self.status if status is None else status
