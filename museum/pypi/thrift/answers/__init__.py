# ruff: noqa
# fmt: off
__all__ = ['ttypes', 'Answers']
