# Serve this folder with WEBrick; with the argument "nodelay", set TCP_NODELAY on each accepted connection.
require "webrick"

options = { BindAddress: "127.0.0.1", Port: 8000, DocumentRoot: ".", AccessLog: [] }
if ARGV == ["nodelay"]
  options[:AcceptCallback] = ->(socket) { socket.setsockopt(:TCP, :NODELAY, true) }
end
server = WEBrick::HTTPServer.new(options)
trap("TERM") { server.shutdown }
server.start
