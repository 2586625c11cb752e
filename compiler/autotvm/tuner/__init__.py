"""Tuners: which configs of a task to measure next."""

from ...support.lazy_import import lazy_attributes

_MEMBERS = {
    "DropletTuner": ".droplet_tuner",
    "GATuner": ".ga_tuner",
    "GridSearchTuner": ".index_tuner",
    "RandomTuner": ".index_tuner",
    "Tuner": ".base",
    "XGBTuner": ".xgb_tuner",
    "callback": "..callback",
    "make_tuner": ".names",
}

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
