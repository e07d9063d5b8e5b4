"""What a user types: a module a command, for `poslab` and for the scripts of a checkout"""
