"""What a run is: its identity, its folder, its lock, and what it leaves behind."""
