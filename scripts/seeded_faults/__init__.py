"""Small faults of the kind that a hurried change makes, and a check that the tests find each."""
