# A small HTTP::Daemon server; with the argument "nodelay" it sets TCP_NODELAY on each accepted connection.
use strict;
use warnings;
use HTTP::Daemon;
use HTTP::Response;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my $daemon = HTTP::Daemon->new(LocalAddr => "127.0.0.1", LocalPort => 8000) or die "cannot listen: $@";
while (my $connection = $daemon->accept) {
    setsockopt($connection, IPPROTO_TCP, TCP_NODELAY, 1) if @ARGV;
    while ($connection->get_request) {
        $connection->send_response(
            HTTP::Response->new(200, "OK", ["Content-Type" => "text/plain"], "Hello, world\n"));
    }
    $connection->close;
}
