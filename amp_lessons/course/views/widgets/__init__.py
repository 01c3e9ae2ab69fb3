"""Controls wired to a compute call and a figure."""
