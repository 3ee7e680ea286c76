"""Reports as single HTML files that load nothing: here of captures and runs; of many together in ``overview``."""

import logging

# Where it keeps its list of fonts, or cannot, is nobody's concern; it says so as soon as it is imported.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

from nagle_lab.reports.html.report import report_page  # noqa: E402
from nagle_lab.reports.html.shown import Shown, shown_at, shown_capture, shown_of, shown_run  # noqa: E402

__all__ = ["Shown", "report_page", "shown_at", "shown_capture", "shown_of", "shown_run"]
