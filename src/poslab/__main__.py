"""Run `python -m poslab train` as `poslab train`."""

from poslab.commands.command_line import main

if __name__ == "__main__":
    main()
