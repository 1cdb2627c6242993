"""Where a run happens: backends, clocks, the driver that pumps machines, and the records they leave."""
