"""The two coasts as network namespaces: made, entered, and left as they were found."""
