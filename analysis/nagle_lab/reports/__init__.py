"""Views of a result; each format is a module, and none of them decides anything."""
