"""The fixture `npudiff`, for tests of models on devices."""
import pytest

import npudiff as _npudiff


class Npudiff:
    """capture, compare, explain and load for a test; captures go into the test's own folder."""

    def __init__(self, folder):
        self._folder, self._n_captures = folder, 0
        self.compare, self.explain, self.load = _npudiff.compare, _npudiff.explain, _npudiff.load

    def capture(self, model, devices, probes=("zeros", "ones", "ramp", "uniform"), **options):
        self._n_captures += 1
        return _npudiff.capture(model, devices, probes, self._folder / f"captures-{self._n_captures}", **options)

    def assert_same(self, reference, *tests, **gates):
        """Fails the test unless the captures are equal bit for bit, or within the gates (lsb=1, atol=1e-3)."""
        return self.compare(reference, *tests, **gates).check()

    def assert_healthy(self, captures, *, quantised, **options):
        """Fails the test unless every layer of every device follows known arithmetic."""
        return self.explain(captures, quantised=quantised, **options).check()


@pytest.fixture
def npudiff(tmp_path):
    return Npudiff(tmp_path)
