"""What can be asked for, checked before anything is read."""
