"""Coverage-guided fuzzing with Atheris: one harness for each parser that reads bytes written by someone else.

    pip install atheris coverage
    python -m tests_slow.fuzz wire --seconds 600

- `targets`: the harnesses. Each checks invariants that hold for any bytes, and says which sources it covers.
- `seeds`: the first inputs of each harness, from the examples of the quick tests.
- `mutate`: a mutator that replaces values inside of JSON, which random bytes seldom do.
- `run`: one campaign, in processes with a memory limit, and its statistics.
- `inputs/`: small inputs that once failed. `tests_slow/test_fuzz.py` replays them.
"""
