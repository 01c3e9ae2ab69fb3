"""The report of an audit as one HTML file, with pictures where matplotlib is there."""
