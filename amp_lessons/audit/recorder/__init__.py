"""Record what anybody's training does, without changing it: spies that turn calls into events, in order."""
