# Send 30 short mails over one connection; with the argument "nodelay", set TCP_NODELAY on it first.
require "net/smtp"

# Net::SMTP opens its connection by this method.
class NoDelaySMTP < Net::SMTP
  private

  def tcp_socket(address, port)
    super.tap { |socket| socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }
  end
end

smtp = (ARGV.empty? ? Net::SMTP : NoDelaySMTP).new("127.0.0.1", 8025)
smtp.start do
  30.times { smtp.send_message("Subject: hello\n\nHello, world\n", "me@example.org", "you@example.org") }
end
