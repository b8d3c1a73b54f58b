"""What the daemon tells people: the log, and bounded rings of log lines and decisions that can be followed."""
