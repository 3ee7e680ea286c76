import io.r2dbc.postgresql.PostgresqlConnectionConfiguration;
import io.r2dbc.postgresql.PostgresqlConnectionFactory;
import io.r2dbc.postgresql.api.PostgresqlConnection;
import io.r2dbc.postgresql.api.PostgresqlResult;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** The reactive PostgreSQL driver inserts one number after the other into a server that says yes to everything. */
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
        send(output, 'S', "TimeZone\0UTC\0");
        send(output, 'K', "\0\0\0\1\0\0\0\1");
        send(output, 'Z', "I");
        output.flush();
        for (int type = input.read(); type >= 0 && type != 'X'; type = input.read()) {
            byte[] message = new byte[input.readInt() - 4];
            input.readFully(message);
            switch (type) {
                case 'P' -> send(output, '1', "");
                case 'B' -> send(output, '2', "");
                case 'C' -> send(output, '3', "");
                case 'D' -> {
                    if (message[0] == 'S') {
                        send(output, 't', "\0\1\0\0\0\27");
                    }
                    send(output, 'n', "");
                }
                case 'E' -> send(output, 'C', "INSERT 0 1\0");
                case 'H' -> output.flush();
                case 'S' -> {
                    send(output, 'Z', "I");
                    output.flush();
                }
                case 'Q' -> {
                    send(output, 'C', "SET\0");
                    send(output, 'Z', "I");
                    output.flush();
                }
                default -> throw new IOException("unexpected message " + (char) type);
            }
        }
        socket.close();
    }

    static void insert() {
        PostgresqlConnection connection = new PostgresqlConnectionFactory(PostgresqlConnectionConfiguration.builder()
                .host("127.0.0.1").port(5432).username("me").password("secret").database("museum").build())
                .create().block();
        for (int number = 0; number < 30; number++) {
            connection.createStatement("INSERT INTO numbers VALUES ($1)").bind("$1", number).execute()
                    .flatMap(PostgresqlResult::getRowsUpdated).blockLast();
        }
        connection.close().block();
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
        System.exit(0);
    }
}
