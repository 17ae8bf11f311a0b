"""`panacea report`: one page for one or many runs, complete in itself, for a browser without any network."""

from panacea.report.page.writing import build_page, write_page

__all__ = ["build_page", "write_page"]
