"""Tokens into logits: a GPT with a positional scheme and a mixer, such as an attention, put into it."""
