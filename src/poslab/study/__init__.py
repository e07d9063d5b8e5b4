"""From requests to finished runs: plan them, launch them, follow them and report on them."""
