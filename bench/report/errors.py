"""The error of a report, in a module of its own: the command line catches it without loading the report."""


class ReportError(Exception):
    """A report cannot be written. The message says why."""
