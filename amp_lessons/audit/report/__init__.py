"""Reports for people: the findings and the numbers of an audit, as text, markdown, HTML and JSON."""
