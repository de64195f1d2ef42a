"""Tests of queues: real processes, a real socket and a real database."""
