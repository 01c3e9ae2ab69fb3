"""What a teacher needs beside the course: a hub, grading, the live room, a guide."""
