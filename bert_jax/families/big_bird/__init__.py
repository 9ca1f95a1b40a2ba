"""BigBird."""
