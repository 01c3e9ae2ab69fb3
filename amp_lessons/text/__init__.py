"""How things are put into words and tables: below every other room."""
