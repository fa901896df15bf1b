"""Made-up logs of the readers in `benchmarks.readers`; tests/recordings/test_contract.py reads them."""
