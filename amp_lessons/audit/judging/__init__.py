"""Find mistakes in what a training did: rules that are asked about its events, one after another."""
