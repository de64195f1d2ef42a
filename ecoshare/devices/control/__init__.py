"""Settings of a device under control: they are written down before they change, and put back."""
