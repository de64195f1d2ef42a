"""One device of a run: its claim, meter, profiling windows, measurements and searches of settings."""
