"""A study's W&B workspace view and W&B Report: python -m poslab.dashboard study=NAME

They are made of what the study's runs have measured, and made again they replace what they were before.
"""
