"""Reports as single HTML files that load nothing: of captures and runs (page.py), of many runs (overview.py)."""

import logging

# As soon as Matplotlib is imported it warns where its list of fonts cannot be kept: of no use to a reader.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
