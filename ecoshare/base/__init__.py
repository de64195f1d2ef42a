"""Words that all rooms speak: frozen values, and helpers of the standard library."""
