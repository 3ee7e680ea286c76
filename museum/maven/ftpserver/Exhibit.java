import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import org.apache.ftpserver.FtpServer;
import org.apache.ftpserver.FtpServerFactory;
import org.apache.ftpserver.command.CommandFactoryFactory;
import org.apache.ftpserver.command.impl.USER;
import org.apache.ftpserver.ftplet.FtpException;
import org.apache.ftpserver.ftplet.FtpRequest;
import org.apache.ftpserver.impl.FtpIoSession;
import org.apache.ftpserver.impl.FtpServerContext;
import org.apache.ftpserver.listener.ListenerFactory;
import org.apache.ftpserver.usermanager.impl.BaseUser;
import org.apache.mina.transport.socket.SocketSessionConfig;

/** An FTP server, from which a small file is fetched again and again; "nodelay" sets TCP_NODELAY at log-in. */
class Exhibit {
    static class NoDelayUser extends USER {
        @Override
        public void execute(FtpIoSession session, FtpServerContext context, FtpRequest request)
                throws IOException, FtpException {
            ((SocketSessionConfig) session.getConfig()).setTcpNoDelay(true);
            super.execute(session, context, request);
        }
    }

    static class Client implements AutoCloseable {
        private final Socket control = new Socket("127.0.0.1", 2121);
        private final BufferedReader replies = new BufferedReader(new InputStreamReader(control.getInputStream()));

        Client() throws IOException {
            control.setTcpNoDelay(true);
            expect("220");
            ask("USER anonymous", "331");
            ask("PASS me@example.org", "230");
            ask("TYPE I", "200");
        }

        private String expect(String code) throws IOException {
            String reply = replies.readLine();
            if (!reply.startsWith(code)) {
                throw new IOException(reply);
            }
            return reply;
        }

        private String ask(String command, String code) throws IOException {
            control.getOutputStream().write((command + "\r\n").getBytes());
            return expect(code);
        }

        void fetch(String file) throws IOException {
            int port = Integer.parseInt(ask("EPSV", "229").replaceAll("\\D*229.*\\|(\\d+)\\|.*", "$1"));
            try (Socket data = new Socket("127.0.0.1", port)) {
                ask("RETR " + file, "150");
                data.getInputStream().readAllBytes();
                expect("226");
            }
        }

        @Override
        public void close() throws IOException {
            control.close();
        }
    }

    static FtpServer server(boolean nodelay) throws FtpException {
        FtpServerFactory factory = new FtpServerFactory();
        ListenerFactory listener = new ListenerFactory();
        listener.setServerAddress("127.0.0.1");
        listener.setPort(2121);
        factory.addListener("default", listener.createListener());
        BaseUser user = new BaseUser();
        user.setName("anonymous");
        user.setHomeDirectory(".");
        factory.getUserManager().save(user);
        if (nodelay) {
            CommandFactoryFactory commands = new CommandFactoryFactory();
            commands.addCommand("USER", new NoDelayUser());
            factory.setCommandFactory(commands.createCommandFactory());
        }
        return factory.createServer();
    }

    public static void main(String[] arguments) throws Exception {
        FtpServer server = server(arguments.length > 0);
        server.start();
        for (int connection = 0; connection < 2; connection++) {
            try (Client client = new Client()) {
                for (int count = 0; count < 30; count++) {
                    client.fetch("exhibit.toml");
                }
            }
        }
        server.stop();
        System.exit(0);
    }
}
