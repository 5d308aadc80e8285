"""Gemini, through Google's API."""
