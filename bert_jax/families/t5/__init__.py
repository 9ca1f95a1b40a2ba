"""The encoders of T5, mT5 and UMT5."""
