"""Which files are one capture, by their names, by a manifest, and by the times in them."""

import re
import sys

import pytest
from fsspec.implementations.local import LocalFileSystem

from nagle_lab.errors import NagleLabError
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.series import NO_TEXT, File, Series, missing_numbers, parsed_name, series_of
from support.stalls import stalled
from support.synthetic import SECOND, pcap_bytes


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("web-1/eth0_00001_20261123120000.pcapng", "web-1/eth0"),  # dumpcap -b
        ("web-1/eth0_00002_20261123130000.pcapng.gz", "web-1/eth0"),
        ("web-1/eth0.pcap", "web-1/eth0"),  # tcpdump -C: the first, and those after it
        ("web-1/eth0.pcap1", "web-1/eth0"),
        ("web-1/eth0.pcap12.gz", "web-1/eth0"),
        ("web-1/eth0.pcap07", "web-1/eth0"),  # -W
        ("web-1/eth1-2026-11-23_12:00:00.pcap", "web-1/eth1"),  # -G
        ("web-1/eth1-20261123-1200.pcap", "web-1/eth1"),
        ("web-1/eth1.1700000000.pcap", "web-1/eth1"),  # %s
        ("2026/11/23/web-1/eth0.pcap", "web-1/eth0"),
        ("web-1/2026-11-23/eth0_001.pcap", "web-1/eth0"),
        ("web-1/20261123.pcap", "web-1"),
        ("web-01.pcap", "web-01"),  # hosts, not rotation
        ("web-02.pcap", "web-02"),
        ("10.0.0.17/any.pcap", "10.0.0.17/any"),
        ("dc1/web-1/eth0_00001_20261123120000.pcap", "dc1/web-1/eth0"),
    ],
)
def test_what_rotation_adds_to_a_name_is_taken_out(name, key):
    assert parsed_name(name).key == key


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def named(series: Series, folder) -> list[str]:
    return [file.path.removeprefix(f"{folder}/") for file in series.files]


def test_files_of_a_host_and_interface_are_one_series_oldest_first(tmp_path):
    names = ["b/eth0_00002_20261123130000.pcap", "b/eth0_00001_20261123120000.pcap", "a/lo.pcap.gz", "a/notes.txt"]
    touch(tmp_path, *names)
    one, two = series_of([str(tmp_path)])
    assert (one.name, one.host, one.interface) == ("a/lo", "a", "lo")
    assert (two.name, named(two, tmp_path)) == ("b/eth0", [names[1], names[0]])
    assert [series_of([str(tmp_path / "b"), str(tmp_path / "a")])[i].name for i in (0, 1)] == ["a/lo", "b/eth0"]
    assert [one.name for one in series_of([f"{tmp_path}/*/eth0*"])] == ["b/eth0"]
    assert [one.name for one in series_of([f"{tmp_path}/a/lo.pcap.gz"])] == ["lo"]


def test_numbers_go_by_their_value_and_begin_at_the_oldest_where_they_began_again(tmp_path):
    for number in range(12):
        began = 1_700_000_000 * SECOND + (number - 5) % 12 * 100 * SECOND
        (tmp_path / f"eth0.pcap{number}").write_bytes(pcap_bytes(stalled(1, t0_ns=began).segments))
    (only,) = series_of([str(tmp_path)])
    assert named(only, tmp_path) == [f"eth0.pcap{(number + 5) % 12}" for number in range(12)]


def test_first_packets_tell_the_order_where_names_have_local_time(tmp_path):
    """tcpdump -G in the night when clocks go back: one hour comes twice; a file without packets keeps its place."""
    names = ["0230", "0200", "0215", "0230b", "0300"]
    for number, name in enumerate(names):
        packets = stalled(1, t0_ns=(1_700_000_000 + 900 * number) * SECOND).segments
        (tmp_path / f"eth0-20231029_{name[:4]}{'30' * name.endswith('b')}.pcap").write_bytes(pcap_bytes(packets))
    (tmp_path / "eth0-20231029_0216.pcap").write_bytes(b"no capture")
    (only,) = series_of([str(tmp_path)])
    in_order = ["0230", "0200", "0215", "0216", "023030", "0300"]
    assert named(only, tmp_path) == [f"eth0-20231029_{name}.pcap" for name in in_order]


def test_a_manifest_says_what_names_do_not(tmp_path):
    touch(tmp_path, "x1.pcap", "x2.pcap", "y.pcap")
    manifest = tmp_path / "fleet.toml"
    manifest.write_text(f"""
        [[series]]
        host = "web-1"
        interface = "eth0"
        files = ["{tmp_path}/x*.pcap", "{tmp_path}/gone.pcap"]
    """)
    (only,) = series_of([str(manifest)])
    assert only.name == "web-1/eth0"
    assert [(file.path.rpartition("/")[2], file.size) for file in only.files] == [
        ("x1.pcap", 1),
        ("x2.pcap", 1),
        ("gone.pcap", -1),
    ]
    for wrong, says in (("[[series]]\nhost = 1", "host"), ("series = 1", "array"), ("[[", "Expected|Invalid|at end")):
        manifest.write_text(wrong)
        with pytest.raises(NagleLabError, match=rf"fleet\.toml: not a manifest of series: .*({says})"):
            series_of([str(manifest)])
    with pytest.raises(NagleLabError, match=r"nothing\.toml: no such file or directory: check the path"):
        series_of([str(tmp_path / "nothing.toml")])


def test_why_a_file_of_a_manifest_cannot_be_read_is_kept(tmp_path, monkeypatch):
    """A missing driver, or credentials: it is not missing."""
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    manifest = tmp_path / "fleet.toml"
    manifest.write_text(f'[[series]]\nhost = "h"\nfiles = ["gs://b/x.pcap", "{tmp_path}/gone.pcap"]')
    (only,) = series_of([str(manifest)])
    assert [file.size for file in only.files] == [-1, -1]
    assert only.files[0].version.startswith("gs:// needs another package: ")
    assert only.files[1].version == "no such file or folder: check the path"


def test_a_folder_may_be_called_like_a_glob(tmp_path):
    touch(tmp_path, "[dc1]/web-1/eth0.pcap", "[dc1]/web-2/eth0.pcap")
    assert [one.name for one in series_of([str(tmp_path / "[dc1]")])] == ["web-1/eth0", "web-2/eth0"]


def test_links_are_followed_and_no_capture_counts_twice(tmp_path):
    touch(tmp_path, "all/web-1/eth0.pcap", "all/web-1/day/eth1.pcap", "elsewhere/eth2.pcap", "elsewhere/in/eth3.pcap")
    all_of = tmp_path / "all"
    links = {
        "up": "..",  # would be everything, again and again
        "same": "web-1/day",
        "web-1/latest.pcap": "eth0.pcap",
        "web-1/gone.pcap": "/nowhere/gone.pcap",
        "web-2": "../elsewhere",
        "web-4": "../elsewhere",
    }
    for name, target in links.items():
        (all_of / name).symlink_to(target)
    (tmp_path / "elsewhere" / "back").symlink_to(all_of)
    found = {file.path.rpartition("/")[2]: file.size for one in series_of([str(all_of)]) for file in one.files}
    assert found == {"eth0.pcap": 1, "eth1.pcap": 1, "eth2.pcap": 1, "eth3.pcap": 1, "gone.pcap": -1}
    assert sum(len(one.files) for one in series_of([str(all_of)])) == len(found)


def test_a_file_whose_name_is_no_text_costs_itself(tmp_path):
    touch(tmp_path, "web-1/eth0.pcap", "web-\udcff/eth0.pcap")
    read, unread = series_of([str(tmp_path)])
    assert [file.size for file in read.files] == [1]
    (file,) = unread.files
    assert (file.size, file.version) == (-1, NO_TEXT) and file.path.endswith("web-\\udcff/eth0.pcap")


def test_a_folder_that_cannot_be_looked_into_is_told_of(tmp_path, monkeypatch):
    touch(tmp_path, "web-1/eth0.pcap", "web-2/eth0.pcap")
    real = LocalFileSystem.ls

    def ls(self, path, detail=False, **options):
        if path.endswith("web-2"):
            raise PermissionError(13, "Permission denied", path)
        return real(self, path, detail, **options)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    with pytest.raises(PermissionError, match="web-2"):
        series_of([str(tmp_path)])


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x.pcap", "s3://"])
def test_an_address_that_cannot_be_reached_is_an_error_that_names_it(url):
    with pytest.raises(NagleLabError, match=rf"^{re.escape(url)}: .*: check the address and your credentials$"):
        series_of([url])
    with pytest.raises(NagleLabError, match=rf"^{re.escape(url)}"):
        Folder(url).read("a")


def test_a_series_of_no_files_is_an_error(tmp_path):
    (tmp_path / "fleet.toml").write_text('[[series]]\nhost = "a"\ninterface = "b"\nfiles = []\n')
    with pytest.raises(NagleLabError, match="the series of a has no files"):
        series_of([str(tmp_path / "fleet.toml")])


def test_a_source_without_captures_is_an_error(tmp_path):
    with pytest.raises(NagleLabError, match="no capture file in it"):
        series_of([str(tmp_path)])
    with pytest.raises(NagleLabError, match=r"none\.pcap: no such file or folder"):
        series_of([str(tmp_path / "none.pcap")])
    with pytest.raises(NagleLabError, match="no capture file in it"):
        series_of([str(tmp_path / "none*")])
    with pytest.raises(NagleLabError, match="the name is empty"):
        series_of([""])


def test_numbers_that_rotation_skipped_are_known():
    def of(*names: str) -> Series:
        return Series("h", "i", tuple(File(name, 1) for name in names))

    assert missing_numbers(
        of("e_00003_20261123120000.pcap", "e_00004_20261123120100.pcap", "e_00007_20261123120400.pcap")
    ) == [5, 6]
    assert missing_numbers(of("e.pcap", "e.pcap1", "e.pcap2")) == []
    assert missing_numbers(of("e_20261123120000.pcap", "e_20261124120000.pcap")) == []
    assert missing_numbers(of("eth0-100.pcap", "eth0-300.pcap")) == list(range(101, 300))
    assert missing_numbers(of("eth0-100.pcap", "eth0-301.pcap")) == []  # no count of files
