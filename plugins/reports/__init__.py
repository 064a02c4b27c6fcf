"""What is kept and shown of a verdict: results, Allure, tables and plots."""
