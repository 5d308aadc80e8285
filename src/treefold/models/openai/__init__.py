"""OpenAI, and every server that speaks its protocol."""
