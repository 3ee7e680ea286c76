"""Files for other programs and other pages: Markdown, JUnit, tables."""
