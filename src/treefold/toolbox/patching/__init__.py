"""Apply a patch to a file, whatever state the patch is in."""
