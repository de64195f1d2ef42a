"""`ecoshare top`."""
