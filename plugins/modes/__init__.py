"""What a run in another mode leaves on the cluster: profiles, NCCL traces, checkpoints. Their digests, checks and words."""
