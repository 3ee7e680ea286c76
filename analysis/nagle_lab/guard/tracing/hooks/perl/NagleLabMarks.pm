# Loaded by every Perl that a traced command starts: say, before each write to a socket, which line makes it.
# A mark is a system call that cannot succeed and whose path contains the information: strace sees it in the thread
# that writes, right before the write. nagle_lab/guard/tracing/strace_output.py explains its format.
#
# print cannot be replaced in Perl. So this is a debugger (perldebguts): Perl calls DB::DB before the statements of lines
# that seem to write, and then evaluates in the program's own scope what they write to.
package NagleLabMarks;

use strict;
use warnings;
use Config ();
use Cwd ();

my $DEEPEST = 60;
my ($MOST_OF_LIBRARIES, $MOST_OF_PROGRAM, $MOST_OF_LINES, $LONGEST) = (8, 8, 6, 200);
my %PLUMBING = map { ($_ => 1) } qw(IO/Handle.pm IO/Socket.pm IO/Socket/INET.pm IO/Socket/IP.pm IO/Socket/UNIX.pm);
my $HANDLE = qr/\$\w+(?:(?:->)?[\[{]\s*['"]?\w+['"]?\s*[\]}])?|[A-Z][A-Z0-9_]*/;
my $PRINT = qr/\b(print|printf|say)\b\s*\(?\s*/;
my $WRITES = qr/\b(?:print|printf|say|syswrite|send|setsockopt|close)\b|->\s*flush\b/;
my %folders;    # of a file: its library's folder; "" for the program's own files
my %absolute;
our $busy = 0;
my $here = __FILE__;

# What statements write to, each as [call, expression of a handle]; "" is the selected handle.
sub handles {
    my ($text) = @_;
    my @found;
    while ($text =~ /$PRINT(?:\{\s*($HANDLE)\s*\}|($HANDLE)\s+(?![-+*\/.<>=,;?&|]|(?:x|eq|ne|if|unless|for|and|or)\b)|)/g) {
        push @found, [$1, $2 // $3 // ""];
    }
    push @found, [$1, $2] while $text =~ /\b(syswrite|send|setsockopt)\s*\(?\s*($HANDLE)\s*,/g;
    push @found, ["close", $1] while $text =~ /\bclose\s*\(?\s*($HANDLE)/g;
    push @found, [$2, $1] while $text =~ /($HANDLE)\s*->\s*(flush|close)\b/g;
    return @found;
}

# The number of a handle if it is a socket, -1 if it is tied, such as TLS; otherwise undef.
sub number {
    my ($handle) = @_;
    no strict "refs";    ## no critic - what is selected has a name
    $handle = \*{$handle} if !ref $handle;
    return -1 if eval { tied *$handle };
    my $number = eval { fileno $handle };
    return defined $number && $number >= 0 && -S $handle ? $number : undef;
}

sub mark {
    my $words = join ";", map { tr/;\0/,,/r } @_;
    utf8::encode($words) if utf8::is_utf8($words);
    rmdir "/proc/nagle-lab;$words";
    return;
}

# The libraries' frames, innermost first and without plumbing, up to the program's frames, and then these.
sub frames {
    my (@libraries, @program);
    for (my $up = 1; $up < $DEEPEST; $up++) {    # 0 is DB::DB
        my (undef, $file, $line) = caller $up or last;
        next if $file eq $here || $file =~ /^\(eval/;
        my ($name, $outer) = ("(eval)", $up);
        while ($name eq "(eval)") { $name = (caller ++$outer)[3] // "main" }
        my $folder = folder($file);
        my $short = substr $absolute{$file}, length $folder;
        $short = "…" . substr $short, -$LONGEST if length $short > $LONGEST;
        if (!$folder) {
            push @program, $short, $line, $name if @program < 3 * $MOST_OF_PROGRAM;
        }
        elsif (!@program && !$PLUMBING{$short} && @libraries < 3 * $MOST_OF_LIBRARIES) {
            push @libraries, $short, $line, $name;
        }
    }
    return @libraries, @program;
}

sub folder {
    my ($file) = @_;
    return $folders{$file} if exists $folders{$file};
    $absolute{$file} = $file =~ m{^/} ? $file : Cwd::getcwd() . "/$file";
    my $found = "";
    for my $path (@INC) {
        next if ref $path;
        my $whole = $path =~ m{^/} ? $path : Cwd::getcwd() . "/$path";
        $whole =~ s{/*$}{/};
        $found = $whole if $whole =~ m{/perl(?:5|-base)?/} && length $whole > length $found && index($absolute{$file}, $whole) == 0;
    }
    return $folders{$file} = $found;
}

# Make Perl stop before the writing lines of a file; it keeps the lines in "_<file".
sub watch {
    my ($name) = @_;
    (my $file = $name) =~ s/^_<//;
    return if $file eq $here;
    folder($file);    # before the program changes its working folder
    no strict "refs";    ## no critic
    my ($lines, $stops, $begin) = (\@{"main::$name"}, \%{"main::$name"}, 0);
    for my $number (1 .. $#$lines) {
        no warnings "numeric";
        my $line = $lines->[$number] // next;
        $begin = $number if $line != 0;    # a statement begins there
        $stops->{$begin} = 1 if $begin && $line =~ $WRITES;
    }
    return;
}

# The statement that begins on a line, as far as that can be recognized.
sub statement {
    my ($file, $line) = @_;
    no strict "refs";    ## no critic
    my $lines = \@{"main::_<$file"};
    my $text = "";
    for my $number ($line .. $line + $MOST_OF_LINES) {
        $text .= $lines->[$number] // last;
        last if $text =~ /;\s*(?:#.*)?$/;
    }
    return $text;
}

package DB;

our ($nagle_lab, @nagle_lab) = ("");

# Strings that are evaluated in this package see the variables of the statement that is about to run.
my $stop = sub {
    return if $busy;
    my ($error, $errno, $status) = ($@, $! + 0, $?);
    my ($package, $file, $line) = caller;
    {
        local ($busy, $_) = 1;
        local ($SIG{__DIE__}, $SIG{__WARN__}) = (undef, sub { });    # the program must not handle errors from this
        @nagle_lab = NagleLabMarks::handles(NagleLabMarks::statement($file, $line));
        for my $one (@nagle_lab) {
            $nagle_lab = $one->[1] =~ s/^(?=[A-Z])/$one->[1] =~ m{^STD} ? "\\*main::" : "\\*${package}::"/er;
            my $handle = $nagle_lab eq "" ? select : eval "package $package; no strict; $nagle_lab";
            my $number = defined $handle ? NagleLabMarks::number($handle) : undef;
            NagleLabMarks::mark($number, 0, $one->[0], NagleLabMarks::frames()) if defined $number;
        }
    }
    ($@, $!, $?) = ($error, $errno, $status);
};

package NagleLabMarks;

@INC = grep { ref || "$_/NagleLabMarks.pm" ne $here } @INC;    # the program does not see this folder
my $is_here = !$^P;    # and not another debugger
INIT { watch("_<$0") if $is_here }

if ($is_here) {
    no warnings "once";
    *DB::DB = $stop;
    *DB::postponed = sub { watch(*{$_[0]}{NAME}) if ref \$_[0] eq "GLOB"; return };    # with each file that was compiled
    $^P = 0x02 | 0x08;    # keep lines and stop at them; call DB::postponed
    mark("hook", "perl");
}

1;
