"""Reading of scenarios, studies and deployments: TOML files and `--set` become checked specifications."""
