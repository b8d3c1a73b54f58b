"""One file a command; main.py has them in the order of `llamactl --help`."""
