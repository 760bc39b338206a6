"""`python -m resharpen`: the command line, for an environment whose scripts are not on the path."""

from resharpen.analyses.cli import main

main()
