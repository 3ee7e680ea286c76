"""Build the site: the simulator, the analyzer, and the docs as HTML, into one folder for any static host.

`make site` runs it, with the folders of the recorders' tables on PYTHONPATH. The pages ask for nothing from other
hosts. All but the analyzer also open from a disk: their modules become one plain script, because a browser loads none
from files.
"""

import html
import json
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path, PurePosixPath

import analyzer
from collect import collect
from markdown_it import MarkdownIt
from markdown_it.token import Token

from nagle_lab.lab.scenarios.scenario import REPOSITORY

SITE = Path(__file__).parent
# In the order of their imports.
MODULES = (
    "kernel", "program", "world", "scenarios", "predictions", "controls", "presets", "ladder", "panels", "data",
    "page", "table", "mystery", "drop", "main",
)  # fmt: skip
IMPORT = re.compile(r'^import (\{[^}]+\}) from "\./([\w-]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:class|function|const) (\w+))", re.MULTILINE)
TO_DROP = re.compile(r'<a href="[^"]*\bdrop\.html">[^<]*</a> ')
REPORT = REPOSITORY / "analysis" / "nagle_lab" / "reports" / "html"
IMAGE = re.compile(r'\bsrc="([^"]+)"')
MARKER = ".nagle-lab-site"  # a folder with this file was made here, and may be made again


def data_module() -> str:
    """data.js: what the pages know of the project's scenarios, recordings and museum."""
    text = json.dumps(collect(), ensure_ascii=False, separators=(",", ":"))
    return f"// Written by build.py from the project's own files.\nexport const DATA = {text};\n"


def script(modules: dict[str, str]) -> str:
    """The modules as one script: each a function that returns what it exports.

    Raises ValueError for an import of what does not come before, or of a form that is not known here.
    """
    parts, known = ['"use strict";\nconst modules = {};\n'], set[str]()
    for name, source in modules.items():
        for _, imported in IMPORT.findall(source):
            if imported not in known:
                raise ValueError(f"{name}.js imports {imported}.js, which comes later in MODULES")
        body = EXPORT.sub(r"\1", IMPORT.sub(r"const \1 = modules.\2;", source))
        if re.search(r"^(import|export)\b", body, re.MULTILINE):
            raise ValueError(f"{name}.js has an import or export that build.py does not know")
        exports = ", ".join(match[1] for match in EXPORT.findall(source))
        parts.append(f"modules.{name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n")
        known.add(name)
    return "(() => {\n" + "".join(parts) + "})();\n"


# ---- the docs


def tracked() -> list[PurePosixPath]:
    """Every file of the project that git would commit."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return [PurePosixPath(name) for name in set(listed.split("\0")) if name and (REPOSITORY / name).is_file()]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page_of(path: PurePosixPath) -> PurePosixPath:
    """Where a Markdown page stands as HTML; a folder's README is its index. The simulator has the top's."""
    if path == PurePosixPath("README.md"):
        return PurePosixPath("readme.html")
    return path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html")


class Docs:
    """The project's Markdown pages as HTML, in the folders they have in the repository.

    What a page links to goes with it: files as they are, folders as a list of their files.
    """

    def __init__(self, into: Path, template: str) -> None:
        self.into = into
        self.template = template
        self.files = set(tracked())
        self.folders: dict[PurePosixPath, set[PurePosixPath]] = {}  # what is directly in each: files and folders
        for path in self.files:
            for inside, folder in pairwise((path, *path.parents)):
                self.folders.setdefault(folder, set()).add(inside)
        self.pages = {path for path in self.files if path.suffix == ".md" and not path.parts[0].startswith(".")}
        self.markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])

    def write(self) -> None:
        """Every page, and what they link to."""
        for path in sorted(self.pages):
            text = (REPOSITORY / path).read_text(encoding="utf-8")
            tokens = self.markdown.parse(re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL))
            title = self.finish(tokens, path)
            self.put(page_of(path), title, self.markdown.renderer.render(tokens, self.markdown.options, {}))

    def finish(self, tokens: list[Token], path: PurePosixPath) -> str:
        """Give headings their anchors and links their places; return the page's title."""
        title, seen = "", dict[str, int]()
        for number, token in enumerate(tokens):
            if token.type == "heading_open":
                text = "".join(part.content for part in tokens[number + 1].children or [] if part.content)
                title = title or text
                anchor = slug(text)
                seen[anchor] = seen.get(anchor, -1) + 1
                token.attrSet("id", f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            if token.attrs.pop("style", None) == "text-align:right":  # the pages' policy allows no style of one's own
                token.attrSet("class", "figure")
            for part in [token, *(token.children or [])]:
                if part.type in {"html_block", "html_inline"}:  # <img src="…" width="…">
                    part.content = IMAGE.sub(lambda found: f'src="{self.place(found[1], path)}"', part.content)
                for attribute in ("href", "src"):
                    if isinstance(link := part.attrGet(attribute), str):
                        part.attrSet(attribute, self.place(link, path))
        return title or path.name

    def place(self, link: str, path: PurePosixPath) -> str:
        """Where a link of the page at ``path`` leads on the site."""
        target, mark, anchor = link.partition("#")
        if not target or ":" in target.split("/")[0]:
            return link
        whole = resolved(path.parent, target)
        if whole in self.pages:
            found = page_of(whole)
        elif whole in self.files:
            found = self.copy(whole)
        elif whole in self.folders:
            found = self.folder(whole)
        else:
            raise ValueError(f"{path} links to {target}, which is no file of the project")
        return relative(page_of(path).parent, found) + (mark + anchor if whole in self.pages else "")

    def copy(self, path: PurePosixPath) -> PurePosixPath:
        """A file as it is. A host shows source code only if it is text to it: it gets ``.txt`` then."""
        shown = path if path.suffix in {".png", ".svg", ".json", ".txt"} else path.with_name(path.name + ".txt")
        if is_binary(REPOSITORY / path):
            shown = path
        place = self.into / shown
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / path, place)
        return shown

    def folder(self, path: PurePosixPath) -> PurePosixPath:
        """A list of a folder's files, and the README's text's place if there is one."""
        readme = path / "README.md"
        if readme in self.pages:
            return page_of(readme)
        index = path / "index.html"
        if not (self.into / index).exists():
            inside = sorted(one for one in self.folders[path] if one in self.files)
            below = sorted(one.name for one in self.folders[path] if one in self.folders)
            rows = [
                f'<li><a href="{html.escape(self.copy(one).name)}">{html.escape(one.name)}</a></li>' for one in inside
            ]
            rows += [f"<li>{html.escape(name)}/</li>" for name in below]
            self.put(index, str(path), f"<h1>{html.escape(str(path))}</h1>\n<ul>\n" + "\n".join(rows) + "\n</ul>\n")
        return index

    def put(self, place: PurePosixPath, title: str, body: str) -> None:
        """A page with the site's head and links."""
        up = "../" * len(place.parent.parts)
        values = {"title": html.escape(title), "up": up, "body": body}
        file = self.into / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(filled(self.template, values), encoding="utf-8")


def filled(template: str, values: dict[str, str]) -> str:
    """A page with its values in the places of ``{{ name }}``."""
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: values[match[1]], template)


def resolved(folder: PurePosixPath, target: str) -> PurePosixPath:
    """A link's path from the top of the repository."""
    parts: list[str] = []
    for part in (folder / target).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def relative(folder: PurePosixPath, path: PurePosixPath) -> str:
    """The link from a page in ``folder`` to ``path``; both from the top of the site."""
    common = 0
    for one, other in zip(folder.parts, path.parent.parts, strict=False):
        if one != other:
            break
        common += 1
    return "/".join([".."] * (len(folder.parts) - common) + list(path.parts[common:]))


def is_binary(file: Path) -> bool:
    """Whether a file is no text."""
    return b"\0" in file.read_bytes()[:4096]


def policy_hash(file: str) -> str:
    """How a page's policy names the style or script that every report has in it."""
    return f"'sha256-{b64encode(sha256((REPORT / file).read_bytes()).digest()).decode()}'"


def build(into: Path) -> None:
    """Write the whole site into ``into``, which must be new, empty, or made here before.

    Where the analyzer's parts cannot be fetched, it says so, and the site has no page for captures. Raises ValueError
    for another folder, for a link of a page that leads nowhere, and for a fetched file that is not the right one.
    """
    if into.exists() and any(into.iterdir()) and not (into / MARKER).exists():
        raise ValueError(f"{into} has files that this did not write: name another folder")
    try:
        fetched = analyzer.fetch(analyzer.CACHE)
    except analyzer.NotFetchedError as error:
        print(f'site/build.py: no page "Drop a capture", because of {error}', file=sys.stderr)
        fetched = []
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    (into / MARKER).touch()
    modules = {
        name: data_module() if name == "data" else (SITE / f"{name}.js").read_text(encoding="utf-8")
        for name in MODULES
    }
    (into / "site.js").write_text(script(modules), encoding="utf-8")
    for name in ("site.css", "icon.svg"):
        shutil.copyfile(SITE / name, into / name)
    values = {"report_style": policy_hash("report.css"), "report_script": policy_hash("report.js")}
    for name in ("index.html", "mysteries.html", "predictions.html", *(["drop.html"] if fetched else [])):
        (into / name).write_text(filled(template(name, with_drop=bool(fetched)), values), encoding="utf-8")
    if fetched:
        analyzer.write(into / "analyzer", fetched)
    Docs(into, template("docs.html", with_drop=bool(fetched))).write()


def template(name: str, *, with_drop: bool) -> str:
    """A page's text; its links to the page for captures only where there is one."""
    text = (SITE / name).read_text(encoding="utf-8")
    return text if with_drop else TO_DROP.sub("", text)


def main(arguments: list[str]) -> int:
    """Build into the folder named; exit 2 where that does not work."""
    if len(arguments) != 1:
        print("site/build.py: name one folder to write, as in: site/build.py public", file=sys.stderr)
        return 2
    try:
        build(Path(arguments[0]))
    except (OSError, ValueError, KeyError) as error:
        print(f"site/build.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
