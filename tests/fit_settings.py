"""Split settings of a case into parameters of a valuer and arguments of its fit."""

OF_FIT = ("cv", "column_groups", "column_types", "owners", "value_labels")


def split_settings(settings):
    """Return the parameters of the valuer, and the arguments of ``fit``."""
    of_fit = {name: settings[name] for name in OF_FIT if name in settings}
    return {name: settings[name] for name in settings if name not in of_fit}, of_fit
