import matplotlib
import pytest
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def figures_without_a_screen():
    matplotlib.use("Agg")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.use("Agg")
        yield
    pyplot.close("all")
