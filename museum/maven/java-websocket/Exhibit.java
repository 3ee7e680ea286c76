import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.java_websocket.client.WebSocketClient;
import org.java_websocket.handshake.ServerHandshake;

/** A WebSocket client that sends two messages and waits for one; with the argument "nodelay" it sets TCP_NODELAY. */
class Exhibit {
    static class Client extends WebSocketClient {
        final BlockingQueue<String> messages = new LinkedBlockingQueue<>();

        Client() {
            super(URI.create("ws://127.0.0.1:8000/"));
        }

        @Override
        public void onMessage(String message) {
            messages.add(message);
        }

        @Override
        public void onOpen(ServerHandshake handshake) {
        }

        @Override
        public void onClose(int code, String reason, boolean remote) {
        }

        @Override
        public void onError(Exception error) {
            error.printStackTrace();
        }
    }

    static String accept(String key) throws Exception {
        byte[] text = (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").getBytes();
        return Base64.getEncoder().encodeToString(MessageDigest.getInstance("SHA-1").digest(text));
    }

    static String line(DataInputStream input) throws IOException {
        StringBuilder text = new StringBuilder();
        for (int next = input.read(); next != '\n'; next = input.read()) {
            text.append((char) next);
        }
        return text.toString().trim();
    }

    /** Read one short frame; say whether it is the last one. */
    static boolean isClose(DataInputStream input) throws IOException {
        int opcode = input.readUnsignedByte() & 0x0f;
        int length = input.readUnsignedByte() & 0x7f;
        input.readFully(new byte[4 + length]);
        return opcode == 8;
    }

    /** As much of a WebSocket server as this client needs: it answers every second message, in one write. */
    static void serve(Socket socket) throws Exception {
        socket.setTcpNoDelay(true);
        DataInputStream input = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        OutputStream output = socket.getOutputStream();
        String key = "";
        for (String line = line(input); !line.isEmpty(); line = line(input)) {
            if (line.toLowerCase().startsWith("sec-websocket-key:")) {
                key = line.substring(18).trim();
            }
        }
        output.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + "Sec-WebSocket-Accept: " + accept(key) + "\r\n\r\n").getBytes());
        while (!isClose(input) && !isClose(input)) {
            output.write(new byte[] {(byte) 0x81, 2, 'o', 'k'});
        }
        output.write(new byte[] {(byte) 0x88, 0});
        socket.close();
    }

    static void talk(boolean nodelay) throws Exception {
        Client client = new Client();
        client.setTcpNoDelay(nodelay);
        client.connectBlocking();
        for (int count = 0; count < 30; count++) {
            client.send("position " + count);
            client.send("speed " + count);
            client.messages.take();
        }
        client.closeBlocking();
    }

    public static void main(String[] arguments) throws Exception {
        try (ServerSocket listener = new ServerSocket(8000, 1, InetAddress.getByName("127.0.0.1"))) {
            Thread server = new Thread(() -> {
                try {
                    serve(listener.accept());
                    serve(listener.accept());
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            server.start();
            talk(arguments.length > 0);
            talk(arguments.length > 0);
            server.join();
        }
        System.exit(0);
    }
}
