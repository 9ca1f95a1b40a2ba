"""What a model answered, to be looked at: numbers, pictures and the worst mistakes of an evaluation as one page."""
