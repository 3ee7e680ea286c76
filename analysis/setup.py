"""How a wheel is made and named; everything else that describes the package is in pyproject.toml.

The engine's C twin is a library that ctypes loads. So a wheel is for every Python 3 of one platform where the library
was compiled, and for every platform where there was no compiler.
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """A wheel named after what was compiled."""

    def run(self) -> None:
        """Build first, for only then is it known whether there is a library."""
        build = self.get_finalized_command("build")
        shutil.rmtree(build.build_base, ignore_errors=True)  # modules of an earlier version would stay in the wheel
        os.environ["SETUPTOOLS_EXT_SUFFIX"] = ".so"  # the usual suffix names one version of Python
        self.run_command("build")
        if not any(Path(build.build_lib).rglob("_engine.so")):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Any Python 3, no ABI of Python's, and the platform."""
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"bdist_wheel": Wheel})
