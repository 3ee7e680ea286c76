"""Words and figures that all views share."""
