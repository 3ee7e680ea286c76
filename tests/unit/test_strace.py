"""What strace wrote, read: by hand-made lines."""

import time
from pathlib import Path

import pytest

from nagle_lab.guard.tracing.calls import Trace
from nagle_lab.guard.tracing.strace_lines import unescaped
from nagle_lab.guard.tracing.strace_output import read_trace

SERVER, CLIENT = ("127.0.0.1", 80), ("127.0.0.1", 5000)
ANSWERS = (SERVER, CLIENT)
SOCKET = "5<TCP:[127.0.0.1:80->127.0.0.1:5000]>"


def trace(folder: Path, *lines: str, most_bytes: int = 1 << 20, end: str = "\n") -> Trace:
    """Of calls a ms apart; a line begins with the thread, and perhaps its name."""
    file = folder / "strace.txt"
    texts = []
    for at, line in enumerate(lines):
        thread, _, text = line.partition(" ")
        named = thread if "<" in thread else f"{thread}<server>"
        texts.append(line if line.startswith(" >") else f"{named} 1700000000.{at:03}000 {text}")
    file.write_text("\n".join(texts) + end)
    return read_trace(file, most_bytes=most_bytes)


def mark(*words: object) -> str:
    text = ";".join(map(str, words))
    return f'1 rmdir("/proc/nagle-lab;{text}") = -1 ENOENT (No such file or directory)'


@pytest.mark.parametrize(
    ("call", "wrote"),
    [
        (f'sendto({SOCKET}, ""..., 200, 0, NULL, 0) = 200', 200),
        (f'sendto({SOCKET}, ""..., 200, MSG_NOSIGNAL, NULL, 0) = 120', 120),  # a partial write
        (f'write({SOCKET}, ""..., 3)       = 3', 3),
        (f'writev({SOCKET}, [{{iov_base=""..., iov_len=5}}, {{iov_base=""..., iov_len=6}}], 2) = 11', 11),
        (f'sendmsg({SOCKET}, {{msg_name=NULL, msg_iov=[{{iov_base=""..., iov_len=9}}], msg_flags=0}}, 0) = 9', 9),
        (f"sendmmsg({SOCKET}, [{{msg_hdr={{}}, msg_len=4}}, {{msg_hdr={{}}, msg_len=5}}], 2, 0) = 2", 9),
        (f"sendfile({SOCKET}, 7</etc/passwd>, [0] => [50], 50) = 50", 50),
        (f"splice(3<pipe:[77]>, NULL, {SOCKET}, NULL, 64, 0) = 64", 64),
        (f'write({SOCKET}, ""..., 3) = -1 EAGAIN (Resource temporarily unavailable)', None),
        (f'write({SOCKET}, ""..., 3) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)', None),
        (f"splice({SOCKET}, NULL, 3<pipe:[77]>, NULL, 64, 0) = 64", None),  # from the socket
        ('write(1</dev/pts/0<char 136:0>>, ""..., 3) = 3', None),
        ("write(9<UDP:[127.0.0.1:80->127.0.0.1:5000]>, ..., 3) = 3", None),
    ],
)
def test_bytes_written_to_a_connection(tmp_path, call, wrote):
    found = trace(tmp_path, f"1 {call}").streams.get(ANSWERS)
    assert (found[0].writes[0].wrote if found else None) == wrote


def test_the_command_since_execve(tmp_path):
    write = f'write({SOCKET}, ""..., 3) = 3'
    failed = 'execve("/bin/python3", [""...], 0x7f /* 3 vars */) = -1 ENOENT (No such file or directory)'
    started = 'execve("/usr/local/bin/a-program-with-a-long-name", [""...], 0x7f /* 3 vars */) = 0'
    lines = (f"1 {call}" for call in (write, failed, write, started, write))
    (stream,) = trace(tmp_path, *lines).streams[ANSWERS]
    assert [call.command for call in stream.writes] == ["server", "server", "a-program-with-a-long-name"]


def test_a_thread_with_a_name_of_its_own_is_of_its_process(tmp_path):
    started = '1 execve("/usr/bin/java", [""...], 0x7f /* 3 vars */) = 0'
    thread = "1 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88) = 2"
    write = f'write({SOCKET}, ""..., 3) = 3'
    found = trace(tmp_path, started, thread, f"2<Thread-0> {write}", f"1<java> {write}")
    assert [call.command for call in found.streams[ANSWERS][0].writes] == ["java", "java"]


def test_the_call_that_wrote_a_byte(tmp_path):
    sizes = (200, 600, 1, 5000)
    (stream,) = trace(tmp_path, *(f'1 write({SOCKET}, ""..., {n}) = {n}' for n in sizes)).streams[ANSWERS]
    wrote = [one.wrote if (one := stream.covering(offset)) else None for offset in (0, 199, 200, 799, 800, 801, 5801)]
    assert wrote == [200, 200, 600, 600, 1, 5000, None]
    assert stream.within(199, 802) == 4
    assert stream.writes[0].at == 1_700_000_000_000_000_000


@pytest.mark.parametrize("text", ["TCPv6:[[::ffff:127.0.0.1]:80->[::ffff:127.0.0.1]:5000]", SOCKET[2:-1]])
def test_addresses_of_ipv4(tmp_path, text):
    assert set(trace(tmp_path, f'1 write(5<{text}>, ""..., 3) = 3').streams) == {ANSWERS}


def test_addresses_of_ipv6(tmp_path):
    found = trace(tmp_path, '1 write(5<TCPv6:[[::1]:80->[fe80::2]:5000]>, ""..., 3) = 3')
    assert set(found.streams) == {(("::1", 80), ("fe80::2", 5000))}


def test_a_call_that_another_thread_interrupts(tmp_path):
    (stream,) = trace(
        tmp_path,
        f'1 sendto({SOCKET}, ""..., 200, 0, NULL, 0 <unfinished ...>',
        f'2 write({SOCKET}, ""..., 10 <unfinished ...>',
        "1 <... sendto resumed>) = 200",
        "2 <... write resumed>) = 10",
        "3 <... write resumed>) = 10",  # begun before the trace
    ).streams[ANSWERS]
    assert [(call.thread, call.name, call.wrote, call.at % 10**9 // 10**6) for call in stream.writes] == [
        (1, "sendto", 200, 0), (2, "write", 10, 1),
    ]  # fmt: skip


def test_threads_that_write_at_once(tmp_path):
    (stream,) = trace(
        tmp_path,
        f'1 write({SOCKET}, ""..., 1) = 1',
        f'1 write({SOCKET}, ""..., 2 <unfinished ...>',
        f'2 write({SOCKET}, ""..., 3) = 3',
        f'3 write({SOCKET}, ""..., 4) = 4',
        "1 <... write resumed>) = 2",
        f'2 write({SOCKET}, ""..., 5) = 5',
    ).streams[ANSWERS]
    assert [(call.wrote, call.at_once) for call in stream.writes] == [
        (1, False), (2, True), (3, True), (4, True), (5, False),
    ]  # fmt: skip


def test_threads_and_processes(tmp_path):
    found = trace(
        tmp_path,
        "1 clone3({flags=CLONE_VM|CLONE_THREAD, child_tid=0x7f}, 88) = 2<server>",
        "2 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 3<server>",
        *(f'{thread} write({SOCKET}, ""..., 3) = 3' for thread in (1, 2, 3)),
    )
    assert [(call.process, call.thread) for call in found.streams[ANSWERS][0].writes] == [(1, 1), (1, 2), (3, 3)]


def test_stacks_belong_to_the_call_above_them(tmp_path):
    (stream,) = trace(
        tmp_path,
        f'1 write({SOCKET}, ""..., 3) = 3', " > /bin/a(f+0x1) [0x11]", " > /bin/a(main+0x2) [0x12]",
        f'1 write({SOCKET}, ""..., 4) = 4',
    ).streams[ANSWERS]  # fmt: skip
    assert [call.stack for call in stream.writes] == [["/bin/a(f+0x1) [0x11]", "/bin/a(main+0x2) [0x12]"], []]


def test_a_stack_of_the_hook_is_taken_where_straces_is_shorter(tmp_path):
    stack = (
        'rmdir("/proc/nagle-lab;stack;5;/bin/a+11;+2f,main+2;/lib/c.so+1a") = -1 ENOENT (No such file or directory)'
    )
    call = f'1 sendto({SOCKET}, ""..., 3, 0, NULL, 0) = 3'
    (stream,) = trace(
        tmp_path,
        f"1 {stack}", call, " > /bin/a(f+0x1) [0x11]", " > unexpected_backtracing_error [0x5]",
        f"1 {stack}", call, *[f" > /bin/a(f+0x1) [{n:#x}]" for n in (0x11, 0x2F, 0x30, 0x31)],
        call,
    ).streams[ANSWERS]  # fmt: skip
    hooked, whole, none = (call.stack for call in stream.writes)
    assert hooked == ["/bin/a(f+0x1) [0x11]", "/bin/a(main+0x2) [0x2f]", "/lib/c.so() [0x1a]"]
    assert len(whole) == 4 and none == []


def test_a_mark_speaks_of_the_bytes_that_follow_it(tmp_path):
    (stream,) = trace(
        tmp_path,
        mark(5, 200, "sendall", "/srv/server.py", 16, "reply", "lib/http.py", 9, "send"),
        f'2 write({SOCKET}, ""..., 1) = 1',  # another thread
        f'1 sendto({SOCKET}, ""..., 200, 0, NULL, 0) = 150',
        f'1 sendto({SOCKET}, ""..., 50, 0, NULL, 0) = -1 EAGAIN (Resource temporarily unavailable)',
        f'1 sendto({SOCKET}, ""..., 50, 0, NULL, 0) = 50',
        f'1 sendto({SOCKET}, ""..., 2, 0, NULL, 0) = 2',  # a library in C, say
        mark(6, 7, "send", "/srv/server.py", 17, "reply"),  # of another socket
        f'1 sendto({SOCKET}, ""..., 7, 0, NULL, 0) = 7',
        mark(-1, 0, "write", "/srv/tls.js", 18, ""),
        f'1 write({SOCKET}, ""..., 999) = 999',
    ).streams[ANSWERS]
    lines = [(call.wrote, call.mark.frames[0][1] if call.mark else 0) for call in stream.writes]
    assert lines == [(1, 0), (150, 16), (50, 16), (2, 0), (7, 0), (999, 18)]
    assert stream.writes[1].mark.frames == (("/srv/server.py", 16, "reply"), ("lib/http.py", 9, "send"))


def test_a_mark_of_a_file_whose_name_is_no_ascii(tmp_path):
    (stream,) = trace(
        tmp_path, mark(5, 3, "send", "/srv/f\\303\\274r \\\"x\\\".py", 3, "f"), f'1 write({SOCKET}, ""..., 3) = 3'
    ).streams[ANSWERS]  # fmt: skip
    assert stream.writes[0].mark.frames == (('/srv/für "x".py', 3, "f"),)


@pytest.mark.parametrize("words", ["", "hook", "x;y;z", "5;3", "5;3;send;only", "5;3;send;f;no number;g"])
def test_a_mark_that_is_none_is_harmless(tmp_path, words):
    found = trace(tmp_path, mark(words), f'1 write({SOCKET}, ""..., 3) = 3')
    assert found.streams[ANSWERS][0].writes[0].wrote == 3
    assert found.hooked == ({1} if words == "hook" else set())


def option(socket: str, value: int, name: str = "TCP_NODELAY", result: str = "0") -> str:
    return f"1 setsockopt({socket}, SOL_TCP, {name}, [{value}], 4) = {result}"


def test_options_before_and_after_connecting(tmp_path):
    there = "7<TCP:[127.0.0.1:5000->127.0.0.1:80]>"
    (stream,) = trace(
        tmp_path,
        option("7<TCP:[123]>", 0, "TCP_CORK"),
        option("7<TCP:[124]>", 1),  # another socket, under the same number
        "1 connect(7<TCP:[124]>, {sa_family=AF_INET, sin_port=htons(80)}, 16) = -1 EINPROGRESS (Operation now)",
        option(there, 0),
        option(there, 1, result="-1 EINVAL (Invalid argument)"),
        "1 setsockopt(7<TCP:[127.0.0.1:5000->127.0.0.1:80]>, SOL_TCP, TCP_KEEPIDLE, [1], 4) = 0",
        f'1 write({there}, ""..., 3) = 3',
    ).streams[CLIENT, SERVER]
    assert [(one.option, one.value, one.error, one.at < stream.began) for one in stream.options] == [
        ("TCP_NODELAY", True, "", True), ("TCP_NODELAY", False, "", False), ("TCP_NODELAY", True, "EINVAL", False),
    ]  # fmt: skip
    assert not stream.accepted


def test_an_option_refused_without_a_reason(tmp_path):
    (call,) = trace(tmp_path, option(SOCKET, 1, result="-1 ")).options
    assert call.error == ""


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("TCP:[0.0.0.0:5000]", '{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}'),
        (
            "TCPv6:[[::]:5000]",
            "{sa_family=AF_INET6, sin6_port=htons(80), sin6_flowinfo=htonl(0), "
            'inet_pton(AF_INET6, "::ffff:127.0.0.1", &sin6_addr), sin6_scope_id=0}',
        ),
    ],
)
def test_a_socket_that_was_bound_and_then_connected(tmp_path, name, address):
    """Strace goes on to call it what it called it first."""
    (stream,) = trace(
        tmp_path,
        option(f"7<{name}>", 1),
        f"1 connect(7<{name}>, {address}, 16) = -1 EINPROGRESS (Operation now in progress)",
        f'1 write(7<{name}>, ""..., 3) = 3',
    ).streams[CLIENT, SERVER]
    assert [call.wrote for call in stream.writes] == [3] and len(stream.options) == 1


def test_options_of_a_listening_socket_also_in_a_child(tmp_path):
    found = trace(
        tmp_path,
        option("3<TCP:[123]>", 1),
        option("3<TCP:[127.0.0.1:80]>", 1, "TCP_CORK"),
        "1 clone(child_stack=NULL, flags=SIGCHLD) = 9<server>",
        "9 accept4(3<TCP:[127.0.0.1:80]>, {sa_family=AF_INET}, [16], 0) = 5<TCP:[127.0.0.1:80->127.0.0.1:5000]>",
    )
    (stream,) = found.streams[ANSWERS]
    assert [one.option for one in stream.listener] == ["TCP_NODELAY", "TCP_CORK"]
    assert stream.accepted and not stream.options


def test_ports_that_are_used_again(tmp_path):
    accept = f"1 accept(3<TCP:[127.0.0.1:80]>, NULL, NULL) = {SOCKET}"
    found = trace(tmp_path, *(2 * [accept, f'1 write({SOCKET}, ""..., 3) = 3']))
    assert [len(stream.writes) for stream in found.streams[ANSWERS]] == [1, 1]
    second = 1_700_000_000_002_000_000
    assert found.stream(ANSWERS, second) is found.streams[ANSWERS][1]
    assert found.stream(ANSWERS, second - 1) is found.streams[ANSWERS][0]


def test_ports_that_are_used_again_while_another_thread_waits(tmp_path):
    """A server whose thread accepts the next connection while others serve: each connection begins when accepted."""
    accepted = f"1 <... accept4 resumed> NULL, NULL, 0) = {SOCKET}"
    waits = "1 accept4(3<TCP:[127.0.0.1:80]>,  <unfinished ...>"
    writes = [f'2 write({SOCKET}, ""..., {size}) = {size}' for size in (200, 600)]
    found = trace(tmp_path, waits, "2 gettid() = 2", accepted, waits, writes[0], accepted, writes[1])
    first, second = found.streams[ANSWERS]
    assert [call.wrote for stream in (first, second) for call in stream.writes] == [200, 600]
    assert (second.began - first.began) // 10**6 == 3, "ms"
    assert found.stream(ANSWERS, before=first.writes[0].at) is first


def test_a_process_for_each_connection_takes_linear_time(tmp_path):
    def least_seconds(count: int) -> float:
        lines = ["1 setsockopt(3<TCP:[127.0.0.1:80]>, SOL_TCP, TCP_NODELAY, [1], 4) = 0"]
        lines += [f"1 clone(child_stack=NULL, flags=SIGCHLD) = {number + 2}" for number in range(count)]
        file = tmp_path / f"{count}.txt"
        file.write_text("".join(f"1<server> 1700000000.000000 {line.partition(' ')[2]}\n" for line in lines))
        seconds = []
        for _ in range(3):
            begin = time.process_time()
            read_trace(file)
            seconds.append(time.process_time() - begin)
        return min(seconds)

    assert least_seconds(8000) < 20 * least_seconds(1000), "8 times as many; in quadratic time it would take 64 times"


def test_a_trace_that_is_cut(tmp_path):
    write = f'1 write({SOCKET}, ""..., 3) = 3'
    cut = trace(tmp_path, write, write[:20], end="")
    assert cut.cut and len(cut.streams[ANSWERS][0].writes) == 1
    bounded = trace(tmp_path, *(100 * [write]), most_bytes=1000)
    assert bounded.cut and 5 < len(bounded.streams[ANSWERS][0].writes) < 20
    assert not trace(tmp_path, write).cut


def test_io_uring_is_noticed(tmp_path):
    assert trace(tmp_path, "1 io_uring_setup(8, {flags=0}) = 7<anon_inode:[io_uring]>").io_uring
    assert not trace(tmp_path, "1 io_uring_setup(8, {flags=0}) = -1 ENOSYS (Function not implemented)").io_uring


def test_what_is_no_call_is_left_out(tmp_path):
    lines = ("1 +++ exited with 0 +++", "1 --- SIGCHLD {si_signo=SIGCHLD} ---", "nonsense", "1 write(", "", " > x")
    assert trace(tmp_path, *lines).streams == {}


def test_strings_as_strace_prints_them():
    assert unescaped(r"a\"b\\c\n\t\303\274\x41") == 'a"b\\c\n\tüA'
