"""What lets a run be interrupted at any moment and resume with the same result."""
