"""What is sent over a run's paths, in any world: flows, jobs, background traffic and the rows they leave."""
