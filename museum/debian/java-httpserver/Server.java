import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;

/** The smallest program with the JDK's own HTTP server. */
class Server {
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8000), 0);
        server.createContext("/", exchange -> {
            byte[] body = "Hello, world\n".getBytes();
            exchange.sendResponseHeaders(200, body.length);
            try (var stream = exchange.getResponseBody()) {
                stream.write(body);
            }
        });
        server.start();
    }
}
