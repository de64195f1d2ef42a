"""Parts that few need."""
