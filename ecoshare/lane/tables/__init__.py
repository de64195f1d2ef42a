"""Tables in shared memory, by which jobs, their supervisor and the controller speak without messages."""
