"""What people read of an audit: its findings and its numbers, as text, markdown, HTML and JSON."""
