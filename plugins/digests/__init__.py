"""Digests of what a cluster recorded: profiles and NCCL traces."""
