"""Digests of what a cluster recorded: profiles, NCCL traces and samples of GPUs, with their tables and plots."""
