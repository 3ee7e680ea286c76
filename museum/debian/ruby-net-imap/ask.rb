# Log in, and examine a mailbox 30 times; with the argument "nodelay", set TCP_NODELAY on the connection first.
require "net/imap"

# Net::IMAP opens its connection by this method.
class NoDelayIMAP < Net::IMAP
  private

  def tcp_socket(host, port)
    super.tap { |socket| socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }
  end
end

imap = (ARGV.empty? ? Net::IMAP : NoDelayIMAP).new("127.0.0.1", port: 8143)
imap.login("me", "secret")
30.times { imap.examine("INBOX") }
imap.logout
imap.disconnect
