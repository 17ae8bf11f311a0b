"""Search for good settings: what may vary, who proposes, what is stopped early, what is chosen and why."""
