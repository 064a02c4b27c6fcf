"""Recipes, their cases, and the contracts between a recipe and its backend."""
