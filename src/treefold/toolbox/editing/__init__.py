"""Look at text files and change them, safely."""
