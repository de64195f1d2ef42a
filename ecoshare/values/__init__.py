"""Values that all layers speak: frozen, printable, and free of imports from the other packages."""
