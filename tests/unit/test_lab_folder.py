"""Run folders: hidden and locked while a run lives, whole when it is over, kept when it failed."""

import errno
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.lab import folder as module
from nagle_lab.lab.folder import RunFolder, claimed, clean_up_abandoned


def visible(runs_dir: Path) -> list[str]:
    return sorted(path.name for path in runs_dir.iterdir() if not path.name.startswith("."))


def hidden(runs_dir: Path) -> list[str]:
    return sorted(path.suffix for path in runs_dir.iterdir() if path.name.startswith("."))


def over(lock_path: Path) -> bool:
    with claimed(lock_path) as is_over:
        return is_over


def killed(run: RunFolder) -> None:
    """Let go of the lock without tidying up, as the kernel does for a killed process."""
    run._lock.close()


def test_a_complete_run_has_its_name_and_the_latest_link_is_relative(tmp_path: Path):
    for _ in range(2):
        run = RunFolder.create(tmp_path, "nginx-static-nodelay-off")
        assert visible(tmp_path) == [name for name in visible(tmp_path) if name.startswith(("2", "latest"))]
        (run.path / "server.pcap").write_bytes(bytes(25))
        path = run.complete()
        assert [file.name for file in path.iterdir()] == ["server.pcap"]
        link = tmp_path / "latest-nginx-static-nodelay-off"
        assert str(link.readlink()) == path.name
        assert link.resolve() == path
    assert len(visible(tmp_path)) == 3
    assert hidden(tmp_path) == []


def test_names_are_utc_times_in_milliseconds_and_never_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    times = iter(
        [datetime(2026, 11, 21, 0, 40, 12, 123999, UTC)] * 2 + [datetime(2026, 11, 21, 0, 40, 12, 124000, UTC)]
    )

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return next(times)

    monkeypatch.setattr(module, "datetime", Clock)
    first, second = RunFolder.create(tmp_path, "a-b"), RunFolder.create(tmp_path, "a-b")
    assert first.path.name == ".20261121T004012.123Z-a-b.partial"
    assert second.complete().name == "20261121T004012.124Z-a-b"
    assert first.complete().name == "20261121T004012.123Z-a-b"


@pytest.mark.parametrize("refused", ["symlink_to", "replace"])
def test_a_run_is_complete_where_the_file_system_refuses_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
):
    """It has no latest link, rather than one that points to an older run."""
    older = RunFolder.create(tmp_path, "a-b").complete()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, refused, refuse)
    newer = RunFolder.create(tmp_path, "a-b").complete()
    clean_up_abandoned(tmp_path)
    assert visible(tmp_path) == [older.name, newer.name]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize(
    ("killed_at", "kept"),
    [("the reserve's unlink", ".failed"), ("rename", ".failed"), ("symlink_to", ""), ("replace", ""), ("unlink", "")],
)
def test_a_run_killed_while_it_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str, kept: str
):
    """Whole under its name, or kept as failed; and the next run finds nothing else of it."""

    class Killed(BaseException):
        pass

    run = RunFolder.create(tmp_path, "a-b")
    (run.path / "server.pcap").write_bytes(bytes(25))
    name, call = run.path.stem.removeprefix("."), killed_at.rpartition(" ")[2]
    happens = getattr(Path, call)

    def die(path: Path, *arguments: object, **options: object) -> None:
        if call != "unlink" or (path.parent == run.path) is killed_at.startswith("the reserve"):
            raise Killed
        happens(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, call, die)
        with pytest.raises(Killed):
            run.complete()
    killed(run)
    clean_up_abandoned(tmp_path)
    assert [path for path in visible(tmp_path) if not path.startswith("latest")] == [name + kept]
    assert all(link.resolve().name == name for link in tmp_path.glob("latest-*"))
    assert hidden(tmp_path) == []
    assert [file.name for file in (tmp_path / (name + kept)).iterdir()] == ["server.pcap"]


@pytest.mark.parametrize("end", [RunFolder.complete, RunFolder.fail])
def test_a_run_that_ended_within_the_millisecond_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end):
    times = iter([datetime(2026, 11, 21, 0, 40, 12, 123000, UTC)] * 2 + [datetime(2026, 11, 21, 0, 40, 13, 0, UTC)])

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return next(times)

    monkeypatch.setattr(module, "datetime", Clock)
    first = end(RunFolder.create(tmp_path, "a-b"))
    second = RunFolder.create(tmp_path, "a-b")
    assert second.path.name == ".20261121T004013.000Z-a-b.partial"
    assert end(second) != first


def test_a_live_run_is_locked_until_it_ends(tmp_path: Path):
    run = RunFolder.create(tmp_path, "a-b")
    assert not over(run.lock_path)
    clean_up_abandoned(tmp_path)
    assert run.path.is_dir()
    assert run.fail().name.endswith("-a-b.failed")
    assert over(run.lock_path)


@pytest.mark.parametrize(("recorded", "kept"), [(24, False), (25, True)], ids=["file header only", "a packet"])
def test_a_killed_run_is_kept_if_anything_was_recorded(tmp_path: Path, recorded: int, kept: bool):
    run = RunFolder.create(tmp_path, "a-b")
    (run.path / "client.pcap").write_bytes(bytes(recorded))
    killed(run)
    clean_up_abandoned(tmp_path)
    assert [name.endswith("-a-b.failed") for name in visible(tmp_path)] == [True] * kept
    assert hidden(tmp_path) == []
    clean_up_abandoned(tmp_path)  # nothing more to do, and no error


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_what_another_user_left_does_not_prevent_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str):
    """As after sudo make repro, in a folder of one's own."""
    run = RunFolder.create(tmp_path, "a-b")
    (run.path / "client.pcap").write_bytes(bytes(25))
    killed(run)

    def refused(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, call, refused)
        clean_up_abandoned(tmp_path)
    assert run.path.is_dir() and run.lock_path.exists()


def test_what_a_run_killed_while_its_folder_was_made_or_named_leaves_is_removed(tmp_path: Path):
    """A lock without a folder, a half-written file, a link that is not in place yet; a live run keeps all of its."""
    for number in range(3):
        run = RunFolder.create(tmp_path, f"killed-{number}")
        (run.path / "client.pcap").write_bytes(bytes(25 * (number < 2)))
        (run.path / ".manifest.json.part").touch()
        run.path.with_suffix(".latest").symlink_to("somewhere")
        if number == 0:
            run.path.rename(tmp_path / run.path.stem.removeprefix("."))
        killed(run)
    live = RunFolder.create(tmp_path, "live")
    live.path.with_suffix(".latest").symlink_to("somewhere")
    clean_up_abandoned(tmp_path)
    assert hidden(tmp_path) == [".latest", ".lock", ".partial"]
    assert [name.partition("Z-")[2] for name in visible(tmp_path)] == ["killed-0", "killed-1.failed"]
    (failed,) = tmp_path.glob("*.failed")
    assert [file.name for file in failed.iterdir()] == ["client.pcap"]


def test_a_lock_that_is_swept_away_before_it_is_held_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another run may find the lock between its creation and its locking, and take it for a killed run's."""
    flock, taken = module.fcntl.flock, []

    def swept_first(lock, how: int) -> None:
        if not taken:
            taken.append(lock.name)
            Path(lock.name).unlink()
        flock(lock, how)

    monkeypatch.setattr(module.fcntl, "flock", swept_first)
    run = RunFolder.create(tmp_path, "a-b")
    assert run.lock_path.exists() and run.path.is_dir()
    assert not over(run.lock_path)


def test_a_lock_that_may_not_be_read_counts_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lock = tmp_path / "lock"
    lock.touch()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(module.fcntl, "flock", refuse)
    assert not over(lock)


def test_a_full_disk_is_noticed_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    with pytest.raises(NagleLabError, match=f"disk full while writing the run folder: make room in {tmp_path}"):
        RunFolder.create(tmp_path, "a-b")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(NagleLabError, match=r"cannot write the run folder in .*file: "):
        RunFolder.create(tmp_path / "file", "a-b")


def test_two_runs_clear_up_after_a_third_at_once(tmp_path: Path):
    """One removes its containers still, holding its lock, while the other comes to its folder."""
    run = RunFolder.create(tmp_path, "a-b")
    killed(run)
    with claimed(run.lock_path) as is_over:
        assert is_over
        clean_up_abandoned(tmp_path)
        assert list(tmp_path.iterdir()) == []
