import java.io.IOException;
import org.apache.sshd.client.SshClient;
import org.apache.sshd.client.session.ClientSession;
import org.apache.sshd.core.CoreModuleProperties;
import org.apache.sshd.server.SshServer;
import org.apache.sshd.server.command.AbstractCommandSupport;
import org.apache.sshd.server.keyprovider.SimpleGeneratorHostKeyProvider;

/** An SSH server on which a client runs one command after the other; "nodelay" sets the server's TCP_NODELAY. */
class Exhibit {
    static class Hello extends AbstractCommandSupport {
        Hello(String command) {
            super(command, null);
        }

        @Override
        public void run() {
            try {
                getOutputStream().write("Hello, world\n".getBytes());
                getOutputStream().flush();
                onExit(0);
            } catch (IOException error) {
                onExit(1, error.getMessage());
            }
        }
    }

    static SshServer server(boolean nodelay) {
        SshServer server = SshServer.setUpDefaultServer();
        server.setHost("127.0.0.1");
        server.setPort(2222);
        server.setKeyPairProvider(new SimpleGeneratorHostKeyProvider());
        server.setPasswordAuthenticator((user, password, session) -> true);
        server.setCommandFactory((channel, command) -> new Hello(command));
        if (nodelay) {
            CoreModuleProperties.TCP_NODELAY.set(server, true);
        }
        return server;
    }

    public static void main(String[] arguments) throws Exception {
        SshServer server = server(arguments.length > 0);
        server.start();
        SshClient client = SshClient.setUpDefaultClient();
        CoreModuleProperties.TCP_NODELAY.set(client, true);
        client.setServerKeyVerifier((session, address, key) -> true);
        client.start();
        for (int connection = 0; connection < 2; connection++) {
            try (ClientSession session = client.connect("me", "127.0.0.1", 2222).verify(5000).getSession()) {
                session.addPasswordIdentity("secret");
                session.auth().verify(5000);
                for (int count = 0; count < 30; count++) {
                    session.executeRemoteCommand("hello");
                }
            }
        }
        client.stop();
        server.stop();
        System.exit(0);
    }
}
