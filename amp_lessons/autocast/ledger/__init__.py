"""The ledger: one row per operation that a model really ran."""
