"""The model, from tokens to logits: a GPT with a positional scheme and mixers, such as attention."""
