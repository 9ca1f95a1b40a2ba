"""Reports: an evaluation as an HTML page with metrics, figures and the worst mistakes."""
