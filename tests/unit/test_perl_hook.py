"""The hook for Perl: the line that writes, said right before the write."""

import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from nagle_lab.guard.tracing import hooking

PROGRAM = """\
use strict; use IO::Socket; use Socket;
socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0) or die;
$one->autoflush(1);
sub header { my ($to) = @_; print $to "abc", "de"; }
sub body { my $to = shift;
  print {$to}
    "fg\\n"; }
sub options { setsockopt($_[0], SOL_SOCKET, SO_KEEPALIVE, 1) }
header($one);
body($one);
send($one, "hi", 0);
syswrite $one, "j";
options($one);
$one->print("k");
my %h = (s => $one);
printf { $h{s} } "%s", "l";
*SOCK = $one; print SOCK "n";
$SIG{__DIE__} = sub { print STDERR "died" }; $! = 2; my $before = 0 + $!;
open(my $file, "<", $0) or die;
close($file);
select $one;
print "m";
select STDOUT;
sysread($other, my $got, 20);
print "no socket $got, $before, ", scalar(grep { /nagle/ } @INC), "\\n";
"""


@pytest.mark.skipif(not shutil.which("perl") or not shutil.which("strace"), reason="there is no Perl, or no strace")
@pytest.mark.parametrize("is_strict", [True, False])
def test_the_hook_names_the_line_and_changes_nothing(tmp_path, is_strict):
    program = tmp_path / "server.pl"
    undeclared = PROGRAM.replace("use strict; ", "").replace(
        "socketpair(my $one, my $other", "socketpair($one, $other"
    )
    program.write_text(PROGRAM if is_strict else undeclared)
    marks = tmp_path / "marks"
    options = hooking.loading({}, stacks=False)["PERL5OPT"]
    command = ["strace", "-f", "-e", "trace=rmdir", "-o", marks, "-E", f"PERL5OPT={options}", "perl", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no socket abcdefg\nhijklnm, 2, 0\n", "")
    said = [mark.split(";") for mark in re.findall(r'/proc/nagle-lab;([^"]+)"', marks.read_text())]
    assert said.pop(0) == ["hook", "perl"]
    assert len({words[0] for words in said}) == 1, "one socket"
    assert [(words[2], Path(words[3]).name, words[4], words[5]) for words in said] == [
        ("print", "server.pl", "4", "main::header"),
        ("print", "server.pl", "6", "main::body"),
        ("send", "server.pl", "11", "main"),
        ("syswrite", "server.pl", "12", "main"),
        ("setsockopt", "server.pl", "8", "main::options"),
        ("print", "server.pl", "14", "main"),
        ("printf", "server.pl", "16", "main"),
        ("print", "server.pl", "17", "main"),
        ("print", "server.pl", "22", "main"),
    ]


@pytest.mark.skipif(not shutil.which("perl") or not shutil.which("strace"), reason="there is no Perl, or no strace")
def test_standard_output_that_is_a_socket(tmp_path):
    """As inetd gives it to a server."""
    program = tmp_path / "server.pl"
    program.write_text(
        "package Server;\nuse strict; $| = 1;\nprint 'a';\nprint STDOUT 'b';\nprintf('%s', 'c') for 1;\n"
    )
    one, other = socket.socketpair()
    options = hooking.loading({}, stacks=False)["PERL5OPT"]
    command = ["strace", "-e", "trace=rmdir", "-o", tmp_path / "marks", "-E", f"PERL5OPT={options}", "perl", program]
    with one, other:
        done = subprocess.run(command, stdout=one, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr, other.recv(10)) == (0, b"", b"abc")
    said = re.findall(r'/proc/nagle-lab;1;0;([^"]+)"', (tmp_path / "marks").read_text())
    assert said == [f"{call};{program};{line};main" for call, line in (("print", 3), ("print", 4), ("printf", 5))]


@pytest.mark.skipif(not shutil.which("perl"), reason="there is no Perl")
def test_another_debugger_stays(tmp_path):
    program = tmp_path / "p.pl"
    program.write_text("print 'ok';\n")
    options = hooking.loading({}, stacks=False)["PERL5OPT"]
    debugger = "sub DB::DB { print STDERR 'DB' }"
    done = subprocess.run(
        ["perl", "-d", program],
        env={"PERL5OPT": options, "PERL5DB": debugger, "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr.replace("DB", "")) == ("ok", "")


def test_the_options_of_perl_that_are_set_stay():
    assert hooking.hooked({"PERL5OPT": "-w"}, Path("/h"), None)["PERL5OPT"] == "-w -I/h/perl -MNagleLabMarks"
