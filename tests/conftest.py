"""What holds for every test here."""

from importlib.util import find_spec

if find_spec("hypothesis"):  # the guest's tests do without
    from hypothesis import settings

    # No test fails for a busy machine: speed is judged by the benchmarks, by ratios within one run.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
