"""What is known of jobs, cases and runs, as values."""
