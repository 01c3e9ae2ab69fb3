"""Ways through the course: what each section of a lesson takes, and routes made of sections."""
