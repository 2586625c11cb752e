"""`gluon.contrib`: `gluon.contrib.nn` has the layers of `gluon.nn`."""

from . import nn
