"""The commands that users type: one module per command, for `poslab` and for the scripts of a checkout"""
