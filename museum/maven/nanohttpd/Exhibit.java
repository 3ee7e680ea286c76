import fi.iki.elonen.NanoHTTPD;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.net.Socket;

/** A NanoHTTPD server, asked over two keep-alive connections; "nodelay" sets TCP_NODELAY on what it accepts. */
class Exhibit {
    static class NoDelayServerSocket extends ServerSocket {
        NoDelayServerSocket() throws IOException {
        }

        @Override
        public Socket accept() throws IOException {
            Socket socket = super.accept();
            socket.setTcpNoDelay(true);
            return socket;
        }
    }

    static void exchange(Socket socket, BufferedReader reader) throws IOException {
        socket.getOutputStream().write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".getBytes());
        if (!reader.readLine().contains(" 200 ")) {
            throw new IOException("not the reply expected");
        }
        int length = 0;
        for (String line = reader.readLine(); !line.isEmpty(); line = reader.readLine()) {
            if (line.toLowerCase().startsWith("content-length:")) {
                length = Integer.parseInt(line.substring(15).trim());
            }
        }
        while (length > 0) {
            length -= reader.skip(length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        NanoHTTPD server = new NanoHTTPD("127.0.0.1", 8000) {
            @Override
            public Response serve(IHTTPSession session) {
                return newFixedLengthResponse("Hello, world\n");
            }
        };
        if (arguments.length > 0) {
            server.setServerSocketFactory(NoDelayServerSocket::new);
        }
        server.start(NanoHTTPD.SOCKET_READ_TIMEOUT, false);
        for (int connection = 0; connection < 2; connection++) {
            try (Socket socket = new Socket("127.0.0.1", 8000)) {
                socket.setTcpNoDelay(true);
                BufferedReader reader = new BufferedReader(new InputStreamReader(socket.getInputStream()));
                for (int count = 0; count < 30; count++) {
                    exchange(socket, reader);
                }
            }
        }
        server.stop();
    }
}
