"""The settings of commands, as schemas and requests, checked before anything is read."""
