"""How things are put into words and tables: below every room but ``formats``, whose names it uses."""
