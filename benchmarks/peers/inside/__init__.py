"""What runs inside the environments of peers, by the peer's own Python: nothing here needs more than that has."""
