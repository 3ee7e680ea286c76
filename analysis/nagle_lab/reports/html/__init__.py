"""Reports as single HTML files that load nothing: of captures and runs (page.py), of many runs (overview.py)."""

import logging

# When imported, Matplotlib warns if it cannot store its list of fonts, which is of no use to a reader.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
