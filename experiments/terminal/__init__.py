"""What every command shares: arguments, exit codes, tables and JSON on stdout, progress on stderr."""
