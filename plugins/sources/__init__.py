"""Logs wherever they are: the jobs of a log, a folder or an archive, and the cases that they ran."""
