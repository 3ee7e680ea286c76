# Send 30 short mails over one connection; with the argument "nodelay", set TCP_NODELAY on it first.
use strict;
use warnings;
use Net::SMTP;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my $smtp = Net::SMTP->new("127.0.0.1", Port => 8025) or die "cannot connect: $@";
setsockopt($smtp, IPPROTO_TCP, TCP_NODELAY, 1) if @ARGV;
for (1 .. 30) {
    $smtp->mail('me@example.org') or die;
    $smtp->to('you@example.org') or die;
    $smtp->data or die;
    $smtp->datasend("Subject: hello\n\nHello, world\n") or die;
    $smtp->dataend or die;
}
$smtp->quit;
