"""What is kept on disk; nothing else opens a database."""
