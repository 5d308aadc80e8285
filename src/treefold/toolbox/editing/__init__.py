"""View text files and edit them safely."""
