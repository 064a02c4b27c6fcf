"""The acceptance of a cluster: the decision on a plan, and scaling."""
