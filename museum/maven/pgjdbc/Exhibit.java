import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;

/** The PostgreSQL driver inserts 10,300 characters at a time into a server that says yes to everything. */
class Exhibit {
    static void send(DataOutputStream output, char type, String body) throws IOException {
        output.writeByte(type);
        output.writeInt(4 + body.length());
        output.writeBytes(body);
    }

    /** As much of PostgreSQL's protocol as the driver needs; each reply leaves in one write. */
    static void serve(Socket socket) throws IOException {
        socket.setTcpNoDelay(true);
        DataInputStream input = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        DataOutputStream output = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
        input.readFully(new byte[input.readInt() - 4]);
        send(output, 'R', "\0\0\0\0");
        send(output, 'S', "server_version\0" + "14.0\0");
        send(output, 'S', "client_encoding\0UTF8\0");
        send(output, 'S', "DateStyle\0ISO\0");
        send(output, 'S', "integer_datetimes\0on\0");
        send(output, 'S', "standard_conforming_strings\0on\0");
        send(output, 'S', "TimeZone\0UTC\0");
        send(output, 'Z', "I");
        output.flush();
        for (int type = input.read(); type >= 0 && type != 'X'; type = input.read()) {
            input.readFully(new byte[input.readInt() - 4]);
            switch (type) {
                case 'P' -> send(output, '1', "");
                case 'B' -> send(output, '2', "");
                case 'D' -> send(output, 'n', "");
                case 'E' -> send(output, 'C', "INSERT 0 1\0");
                case 'S' -> {
                    send(output, 'Z', "I");
                    output.flush();
                }
                default -> throw new IOException("unexpected message " + (char) type);
            }
        }
        socket.close();
    }

    static void insert() throws Exception {
        String address = "jdbc:postgresql://127.0.0.1:5432/museum?user=me&sslmode=disable&gssEncMode=disable";
        try (Connection connection = DriverManager.getConnection(address);
                PreparedStatement statement = connection.prepareStatement("INSERT INTO texts VALUES (?)")) {
            for (int count = 0; count < 30; count++) {
                statement.setString(1, "x".repeat(10300));
                statement.executeUpdate();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (ServerSocket listener = new ServerSocket(5432, 1, InetAddress.getByName("127.0.0.1"))) {
            Thread server = new Thread(() -> {
                try {
                    serve(listener.accept());
                    serve(listener.accept());
                } catch (IOException error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            server.start();
            insert();
            insert();
            server.join();
        }
    }
}
