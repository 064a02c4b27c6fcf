"""The documentation as a web site: the pages of this repository, and those that are made from models and YAML."""
