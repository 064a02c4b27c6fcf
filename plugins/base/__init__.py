"""What all packages use: words, errors, files, YAML, statistics, pictures and the terminal. It knows nothing of jobs."""
