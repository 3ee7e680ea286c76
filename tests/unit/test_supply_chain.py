"""What is fetched is pinned, bills of materials are right and stable, and a difference between two makings shows."""

import itertools
import json
import re
import tomllib
from pathlib import Path

import pytest

from supply_chain import packages, sbom, twice
from support.repository import REPOSITORY
from support.supply import check_bill

DOCKERFILES = sorted({image / "Dockerfile" for lab in packages.labs() for image in lab.images})
LOCKED = sorted((REPOSITORY / "analysis").glob("requirements*.txt"))
Package = packages.Package

SAID = """PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
VERSION_ID="13"
ID=debian
\fzlib1g\t1:1.3-1+b1\tamd64\tzlib\t1:1.3-1
nginx\t1.26.3-3+deb13u1\tamd64\tnginx\t1.26.3-3+deb13u1
libssl3t64\t3.5.1-1\tamd64\topenssl\t3.5.1-1
"""


# What is pinned


def lines(path: Path) -> list[str]:
    """The commands of a script, Dockerfile or workflow: no comments, continued lines joined."""
    joined = path.read_text().replace("\\\n", " ")
    return [line for line in joined.splitlines() if not line.lstrip().startswith("#")]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_an_image_is_built_from_our_base_and_the_distribution_s_packages_alone(path: Path):
    commands = lines(path)
    assert "ARG BASE=nagle-lab/base" in commands
    stages = [match.groups() for line in commands if (match := re.match(r"FROM (\S+)(?: AS (\S+))?$", line))]
    assert stages and {image for image, _ in stages} == {"$BASE"}
    assert len(stages) == sum(line.startswith("FROM") for line in commands)
    copied_from = re.findall(r"--from=(\S+)", "\n".join(commands))
    assert set(copied_from) <= {name for _, name in stages if name}
    fetching = re.compile(r"^ADD |https?:|\b(curl|wget|git|npm|npx|yarn|pip3?|gem|cpan|sources\.list|trusted)\b")
    assert [line for line in commands if fetching.search(line)] == []
    # A first stage that `make clean` does not find stays for ever.
    assert sum(line == "LABEL nagle-lab.base=$BASE" for line in commands) == len(stages)


def test_no_dockerfile_is_left_out():
    assert (
        sorted(path for path in REPOSITORY.rglob("Dockerfile") if not {".venv", ".cache"} & set(path.parts))
        == DOCKERFILES
    )


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_every_python_package_is_locked_by_version_and_hash(path: Path):
    locked = lines(path)
    assert locked
    line = re.compile(r"[a-z0-9][\w.-]*==[\w.!+]+( ; [^@]+?)?(\s+--hash=sha256:[0-9a-f]{64})+")
    assert [each for each in locked if not line.fullmatch(each)] == []


def test_python_packages_are_installed_by_hash_or_are_our_own():
    scripts = [
        REPOSITORY / "Makefile",
        REPOSITORY / "maintenance" / "Makefile",
        *(REPOSITORY / "setup").glob("*.sh"),
        *(REPOSITORY / "maintenance").glob("*.sh"),
        *(REPOSITORY / "ci").iterdir(),
        *(REPOSITORY / ".ci").iterdir(),
        *(REPOSITORY / ".github" / "workflows").glob("*.yml"),
    ]
    installs = [
        line.strip()
        for script in scripts
        for line in lines(script)
        if re.search(r"\bpip3?( -\S+)* install\b|\bpip_install --|\b(pipx|uv|easy_install|npm)\b", line)
        and '"$@"' not in line  # the function that the other lines call
    ]
    assert len(installs) == 7, "another way to install: look at it, and count it here"
    ours = ("pip_install --no-deps --no-build-isolation --editable ", "pip_install --no-index --no-deps ")
    assert [line for line in installs if "--require-hashes" not in line and not line.startswith(ours)] == []


def test_what_builds_our_own_package_is_locked_too():
    """It is built without isolation: in isolation pip would fetch the newest build system there is."""
    system = tomllib.loads((REPOSITORY / "analysis" / "pyproject.toml").read_text())["build-system"]["requires"]
    for name in (re.match(r"[\w-]+", each).group() for each in system):
        for locked in ("requirements.txt", "requirements-dev.txt", "requirements-release.txt"):
            assert re.search(rf"^{name}==", (REPOSITORY / "analysis" / locked).read_text(), re.MULTILINE)


def test_an_image_pulled_is_pulled_by_digest():
    assert re.search(r"^readonly DIGEST=sha256:[0-9a-f]{64}$", (REPOSITORY / "setup/base-image.sh").read_text(), re.M)


# Bills of materials


def details(**changed) -> dict:
    labels = {"nagle-lab.base": "nagle-lab/base", "nagle-lab.origin": "bootstrapped"}
    return {"Id": "sha256:1", "RepoTags": ["nagle-lab/nginx:1"], "Config": {"Labels": labels}, **changed}


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"nagle-lab/base": [{"Id": "sha256:0", "RepoDigests": ["debian@sha256:2"]}]}
    monkeypatch.setattr(sbom, "image_details", lambda names: known[names[0]])


@pytest.mark.usefixtures("base")
def test_the_bill_of_an_image():
    bill = sbom.image_bill(details(), "nagle-lab/nginx", REPOSITORY / "nginx", packages.parsed(SAID))
    check_bill(bill)
    by_name = {component["name"]: component for component in bill["components"]}
    assert by_name["debian"]["type"] == "operating-system" and by_name["debian"]["version"] == "13"
    assert by_name["nginx"]["purl"] == "pkg:deb/debian/nginx@1.26.3-3%2Bdeb13u1?arch=amd64&distro=debian-13"
    assert by_name["libssl3t64"]["purl"].endswith("?arch=amd64&distro=debian-13&upstream=openssl")
    zlib = by_name["zlib1g"]
    assert zlib["purl"].endswith("/zlib1g@1:1.3-1%2Bb1?arch=amd64&distro=debian-13&upstream=zlib%401:1.3-1")
    assert {each["name"].rpartition(":")[2]: each["value"] for each in zlib["properties"]} == {
        "SrcName": "zlib", "SrcEpoch": "1", "SrcVersion": "1.3", "SrcRelease": "1",
    }  # fmt: skip
    assert by_name["nginx/entrypoint"]["type"] == "file"
    assert {each["name"]: each["value"] for each in bill["metadata"]["component"]["properties"]} == {
        "nagle-lab:image-id": "sha256:1",
        "nagle-lab:base": "nagle-lab/base",
        "nagle-lab:base-id": "sha256:0",
        "nagle-lab:base-digest": "debian@sha256:2",
        "nagle-lab:base-origin": "bootstrapped",
    }


@pytest.mark.usefixtures("base")
def test_the_same_image_gives_the_same_bytes_and_another_another_serial_number():
    head, _, rows = SAID.partition("\f")
    texts = [f"{head}\f{''.join(order)}" for order in itertools.permutations(rows.splitlines(keepends=True))]
    folder = REPOSITORY / "nginx"
    bills = [sbom.image_bill(details(), "nagle-lab/nginx", folder, packages.parsed(text)) for text in texts]
    assert len({json.dumps(bill) for bill in bills}) == 1
    newer = packages.parsed(SAID.replace("3.5.1-1", "3.5.1-2"))
    other = sbom.image_bill(details(), "nagle-lab/nginx", folder, newer)
    assert other["serialNumber"] != bills[0]["serialNumber"]


def test_the_bill_of_the_analyzer_tells_what_runs_from_what_tests():
    installed = [Package("nagle-lab", "0.1.0"), Package("markdown_it.py", "4.0"), Package("pytest", "9")]
    needed = sbom.needed_to_run()
    assert {"numpy", "rich", "markdown-it-py"} <= needed and "pytest" not in needed
    bill = sbom.python_bill(installed, needed)
    check_bill(bill)
    found = {component["purl"]: component["scope"] for component in bill["components"]}
    assert found == {"pkg:pypi/markdown-it-py@4.0": "required", "pkg:pypi/pytest@9": "excluded"}


@pytest.mark.parametrize(
    "path", [path for path in DOCKERFILES if "jlink" in path.read_text()], ids=lambda p: p.parent.name
)
def test_an_image_with_files_of_packages_that_stay_behind_names_them(path: Path):
    text = path.read_text()
    assert f"--showformat='{packages.FORMAT}' >/opt/packages" in text
    assert f"COPY --from=build /opt/packages {packages.COPIED}\n" in text


# Two makings


def test_every_difference_is_named():
    first = [Package("same", "1", "all"), Package("newer", "1-1", "amd64"), Package("gone", "3", "amd64")]
    second = [Package("same", "1", "all"), Package("newer", "1-2", "amd64"), Package("come", "4")]
    assert twice.differences(first, first) == []
    assert twice.differences(first, second) == [
        "come (missing) → 4",
        "gone:amd64 3 → (missing)",
        "newer:amd64 1-1 → 1-2",
    ]


@pytest.mark.parametrize(("second", "code"), [("1.0", 0), ("1.1", 1)])
def test_a_difference_is_red_and_says_where(monkeypatch, capsys, second: str, code: int):
    versions = {1: "1.0", 2: second}
    monkeypatch.setattr(
        twice,
        "make",
        lambda names, tag: {"base": (Package("dpkg", "1"),), "nginx": (Package("nginx", versions[tag]),)},
    )
    assert twice.main() == code
    base, *nginx = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert base == ["base", "1", "packages", "same"]
    named = [["nginx", "1", "packages", "different"], ["nginx", "1.0", "→", "1.1"]]
    assert nginx == (named if code else [["nginx", "1", "packages", "same"]])


def test_what_was_made_is_removed_even_when_a_build_fails(monkeypatch, tmp_path: Path):
    """With a docker that builds the first image and fails at the second."""
    calls = tmp_path / "calls"
    fake = tmp_path / "docker"
    fake.write_text(
        f"""#!/bin/sh
echo "$*" >>{calls}
case "$1 $2" in
  "image ls") echo x/base:1; echo x/app-server:1 ;;
  "build "*) case $* in *app-server*) ;; *) echo "E: no such package"; exit 1 ;; esac ;;
  "run "*) printf 'ID=debian\\nVERSION_ID=13\\n\\fdpkg\\t1\\tall\\tdpkg\\t1\\n' ;;
esac
"""
    )
    fake.chmod(0o755)
    (tmp_path / "setup").mkdir()
    (tmp_path / "setup" / "base-image.sh").write_text("#!/bin/sh\n")
    (tmp_path / "setup" / "base-image.sh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(twice, "REPOSITORY", tmp_path)
    with pytest.raises(twice.NagleLabError, match="cannot make client: E: no such package"):
        twice.make("x", 1)
    done = calls.read_text().splitlines()
    prune = "image prune --force --filter label=nagle-lab.base=x/base:1"
    assert done[-2:] == ["image rm x/base:1 x/app-server:1", prune]
    built = [line for line in done if line.startswith("build ")]
    assert all("--no-cache" in line and "--build-arg BASE=x/base:1 --tag x/" in line for line in built)
