"""Code that all commands share: arguments, exit codes, tables and JSON on stdout, progress on stderr."""
