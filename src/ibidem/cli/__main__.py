"""`python -m ibidem.cli`"""

from . import main

main()
