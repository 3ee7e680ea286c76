"""The source files of the classes that Java's hook names."""

from functools import cache
from pathlib import Path

# Up from a folder of classes, then down to the sources: the layouts of javac -d, Maven and Gradle.
_UP = 4
_DOWN = ("", "src", "src/main/java", "src/test/java", "src/main/kotlin", "src/test/kotlin", "src/main/scala")


@cache
def source_of(file: str) -> str:
    """The source of a class as the hook names it: "/app/target/classes//org/example/Server.java" is the folder or jar
    that the class was loaded from, its package, and its source's name.

    If there is no such file near that folder or below the working directory, the result is that path with one slash.
    A text that names no class stays as it is.
    """
    loaded_from, is_class, source = file.partition("//")
    if not is_class:
        return file
    folders = [Path(loaded_from), *Path(loaded_from).parents][: _UP + 1]
    for folder in [*folders, Path.cwd()]:
        for down in _DOWN:
            if (found := folder / down / source).is_file():
                return str(found)
    return f"{loaded_from}/{source}"
