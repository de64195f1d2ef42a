"""Tables for terminals and pages."""
