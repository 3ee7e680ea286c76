import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Publishes messages on one connection, one after the other, each confirmed before the next. */
final class Publisher extends SimpleChannelInboundHandler<ByteBuf> {
    private static final int MAGIC = 0x4D515545;
    private static final int MESSAGE = 1;
    private static final int CONFIRM = 2;
    private static final int SUCCESS = 3;

    /** Milliseconds from each message to its SUCCESS, once all are through. */
    final CompletableFuture<List<Double>> done = new CompletableFuture<>();

    private final int messages;
    private final boolean glued;
    private final byte[] body;
    private final List<Double> tookMs = new ArrayList<>();
    private long startedNs;

    Publisher(int messages, boolean glued, byte[] body) {
        this.messages = messages;
        this.glued = glued;
        this.body = body;
    }

    void publish(ChannelHandlerContext context) {
        startedNs = System.nanoTime();
        context.writeAndFlush(frame(context, MESSAGE, body));
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, ByteBuf frame) {
        if (frame.getInt(0) != MAGIC || frame.getInt(4) != SUCCESS) {
            throw new IllegalStateException("the broker answered with something else than SUCCESS");
        }
        tookMs.add((System.nanoTime() - startedNs) / 1e6);
        boolean last = tookMs.size() == messages;
        ByteBuf confirm = frame(context, CONFIRM, new byte[0]);
        if (glued && !last) {
            context.write(confirm);  // leaves with the next message's flush
        } else {
            context.writeAndFlush(confirm);
        }
        if (last) {
            done.complete(tookMs);
        } else {
            publish(context);
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        done.completeExceptionally(cause);
        context.close();
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        done.completeExceptionally(new IllegalStateException("the broker closed the connection"));
    }

    private static ByteBuf frame(ChannelHandlerContext context, int kind, byte[] body) {
        return context.alloc().buffer(12 + body.length)
            .writeInt(MAGIC).writeInt(kind).writeInt(body.length).writeBytes(body);
    }
}
