"""Slides made from the lessons: one HTML file per lesson, which needs nothing beside itself."""
