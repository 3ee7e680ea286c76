"""Reports as single HTML files that load nothing: here of captures and runs; of many together in ``overview``."""

import logging

# As soon as it is imported it warns where its list of fonts cannot be kept: of no use to a reader.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

from nagle_lab.reports.html.report import report_page  # noqa: E402
from nagle_lab.reports.html.shown import Shown, shown_at, shown_capture, shown_of, shown_run  # noqa: E402

__all__ = ["Shown", "report_page", "shown_at", "shown_capture", "shown_of", "shown_run"]
