"""`python -m ibidem.cli`"""

from . import launch

launch()
