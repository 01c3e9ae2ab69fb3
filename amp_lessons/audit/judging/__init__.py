"""Find mistakes in what a training did: rules that hear its events, one after another."""
