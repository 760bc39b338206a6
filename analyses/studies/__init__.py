"""Studies by the name that the command line takes.

A study is a package with a configuration, its presets, and ``run(config) -> StudyResult``.
"""
