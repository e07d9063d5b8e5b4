"""From requests to finished runs: plan, launch, watch, report."""
