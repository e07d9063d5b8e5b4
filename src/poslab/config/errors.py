"""The errors that end a command with a one-line message, and the exit statuses."""

FAILED, WRONG_COMMAND, INTERRUPTED = 1, 2, 130  # exit statuses


class UserError(Exception):
    """An error with a one-line message for the user; `status` is the exit status of the command."""

    status = WRONG_COMMAND

    def __init__(self, line: str, status: int | None = None) -> None:
        super().__init__(line)
        self.status = self.status if status is None else status
