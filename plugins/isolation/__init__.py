"""From a slow job to the node, the link or the leaf that slows it: which probes to run, and what they tell. Pure."""

PROOF = "proof"
"""The mode of the job that runs a case again without the nodes that slow it."""
