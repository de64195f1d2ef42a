"""Entry point of `python -m ecoshare`."""

from ecoshare.cli import main

main()
