"""Compare two outputs of the same inputs, with every gradient."""

import torch


def assert_same_with_gradients(ours, expected, leaves, tolerance=1e-10):
    """Gradients, for one random upstream gradient, may differ by ten times as much as the outputs."""
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)
    probe = torch.randn_like(ours)
    gradients = (torch.autograd.grad((x * probe).sum(), leaves) for x in (ours, expected))
    for our, their in zip(*gradients, strict=True):
        torch.testing.assert_close(our, their, rtol=10 * tolerance, atol=10 * tolerance)
        assert not ours.numel() or their.abs().max() > 1e-3
