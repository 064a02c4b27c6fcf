"""What a log tells of the GPUs of its run: samples, and the causes of a slow GPU that they show."""
