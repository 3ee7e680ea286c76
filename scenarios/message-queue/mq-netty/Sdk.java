import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.util.Version;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;

/**
 * The SDK on Netty: the same protocol, commands and report as the one on plain sockets.
 *
 * <pre>
 * sdk configuration            open a connection with the settings below and print what the kernel says of it
 * sdk load HOST PORT N C       publish N messages over C connections; the last line is the report, as JSON
 *
 * TCP_NODELAY=off|on|default   ChannelOption.TCP_NODELAY; default: do not mention it to Netty
 * CONFIRM=alone|glued          each confirm flushed by itself, or together with the next message
 * BODY_BYTES=18                body of a message; its header has 12 bytes more
 * </pre>
 */
public final class Sdk {
    private static final String NODELAY = setting("TCP_NODELAY", "off");
    private static final String CONFIRM = setting("CONFIRM", "alone");
    private static final byte[] BODY = new byte[Integer.parseInt(setting("BODY_BYTES", "18"))];

    private final NioEventLoopGroup group = new NioEventLoopGroup(1);

    public static void main(String[] arguments) throws Exception {
        Sdk sdk = new Sdk();
        try {
            if (arguments[0].equals("configuration")) {
                sdk.configuration();
            } else {
                SocketAddress broker = new InetSocketAddress(arguments[1], Integer.parseInt(arguments[2]));
                sdk.load(broker, Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
            }
        } catch (Exception error) {
            System.err.println("sdk: " + error.getMessage());
            System.exit(1);
        } finally {
            sdk.group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** Connects to itself, so that no capture of the lab's network sees it. */
    private void configuration() throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            connect(listener.getLocalSocketAddress(), new Publisher(0, false, BODY)).close().sync();
        }
    }

    private void load(SocketAddress broker, int messages, int connections) throws Exception {
        List<Publisher> publishers = new ArrayList<>();
        List<Channel> channels = new ArrayList<>();
        for (int i = 0; i < connections; i++) {
            int share = messages / connections + (i < messages % connections ? 1 : 0);
            publishers.add(new Publisher(share, CONFIRM.equals("glued"), BODY));
            channels.add(connect(broker, publishers.get(i)));
        }
        long startedNs = System.nanoTime();
        for (Channel channel : channels) {
            Publisher publisher = channel.pipeline().get(Publisher.class);
            channel.eventLoop().execute(() -> publisher.publish(channel.pipeline().context(Publisher.class)));
        }
        List<Double> tookMs = new ArrayList<>();
        for (Publisher publisher : publishers) {
            tookMs.addAll(publisher.done.get());
        }
        double durationS = (System.nanoTime() - startedNs) / 1e9;
        for (Channel channel : channels) {
            channel.close().sync();
        }
        System.out.println(report(messages, tookMs, durationS));
    }

    /** Opens a connection with the settings, and prints what the kernel says of it: Netty's getOption asks it. */
    private Channel connect(SocketAddress address, Publisher publisher) throws InterruptedException {
        Bootstrap bootstrap = new Bootstrap().group(group).channel(NioSocketChannel.class);
        if (!NODELAY.equals("default")) {
            bootstrap.option(ChannelOption.TCP_NODELAY, NODELAY.equals("on"));
        }
        Channel channel = bootstrap.handler(new ChannelInitializer<Channel>() {
            @Override
            protected void initChannel(Channel opened) {
                opened.pipeline().addLast(new LengthFieldBasedFrameDecoder(1 << 20, 8, 4), publisher);
            }
        }).connect(address).sync().channel();
        int kernel = channel.config().getOption(ChannelOption.TCP_NODELAY) ? 1 : 0;
        String whose = NODELAY.equals("default") ? " (Netty's default)" : "";
        System.out.println("connection TCP_NODELAY=" + kernel + whose + " CONFIRM=" + CONFIRM);
        return channel;
    }

    private static String report(int messages, List<Double> tookMs, double durationS) {
        Collections.sort(tookMs);
        List<String> percentiles = new ArrayList<>();
        for (int percent : new int[] {50, 90, 99, 100}) {
            double ms = tookMs.get((int) Math.ceil(tookMs.size() * percent / 100.0) - 1);
            percentiles.add(String.format(Locale.ROOT, "\"%d\": %.3f", percent, ms));
        }
        double meanMs = tookMs.stream().mapToDouble(Double::doubleValue).average().orElseThrow();
        return String.format(
            Locale.ROOT,
            "{\"version\": \"Netty %s on Java %s\", \"requests\": %d, \"complete\": %d, \"failed\": %d, "
                + "\"requests_per_s\": %.1f, \"mean_ms\": %.3f, \"duration_s\": %.6f, \"percentiles_ms\": {%s}}",
            Version.identify().get("netty-transport").artifactVersion(), System.getProperty("java.version"),
            messages, tookMs.size(), messages - tookMs.size(),
            tookMs.size() / durationS, meanMs, durationS, String.join(", ", percentiles));
    }

    private static String setting(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }
}
