"""Train a drafter: collect the target's own words, fit, export."""
