import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.CountDownLatch;
import org.eclipse.paho.client.mqttv3.IMqttDeliveryToken;
import org.eclipse.paho.client.mqttv3.MqttAsyncClient;
import org.eclipse.paho.client.mqttv3.MqttCallback;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.MqttMessage;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

/** A client that answers questions over MQTT (QoS 1); with the argument "nodelay" its socket has TCP_NODELAY set. */
class Exhibit {
    static void send(OutputStream output, int type, int... body) throws IOException {
        byte[] packet = new byte[2 + body.length];
        packet[0] = (byte) type;
        packet[1] = (byte) body.length;
        for (int index = 0; index < body.length; index++) {
            packet[2 + index] = (byte) body[index];
        }
        output.write(packet);
    }

    static int receive(DataInputStream input) throws IOException {
        int type = input.readUnsignedByte() >> 4;
        input.readFully(new byte[input.readUnsignedByte()]);
        return type;
    }

    /** As much of a broker as this client needs: it asks, and waits for the acknowledgement and the answer. */
    static void serve(Socket socket) throws IOException {
        socket.setTcpNoDelay(true);
        DataInputStream input = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        OutputStream output = socket.getOutputStream();
        receive(input);
        send(output, 0x20, 0, 0);
        receive(input);
        send(output, 0x90, 0, 1, 1);
        for (int question = 1; question <= 30; question++) {
            send(output, 0x32, 0, 1, 'q', 0, question, 'h', 'i');
            if (receive(input) + receive(input) != 3 + 4) {
                throw new IOException("not the packets expected");
            }
        }
        socket.close();
    }

    static void answer(MqttConnectOptions options) throws Exception {
        CountDownLatch over = new CountDownLatch(1);
        MqttAsyncClient client = new MqttAsyncClient("tcp://127.0.0.1:1883", "exhibit", new MemoryPersistence());
        client.setCallback(new MqttCallback() {
            @Override
            public void messageArrived(String topic, MqttMessage message) throws Exception {
                client.publish("answers", "hello".getBytes(), 0, false);
            }

            @Override
            public void deliveryComplete(IMqttDeliveryToken token) {
            }

            @Override
            public void connectionLost(Throwable cause) {
                over.countDown();
            }
        });
        client.connect(options).waitForCompletion();
        client.subscribe("q", 1).waitForCompletion();
        over.await();
        client.close(true);
    }

    public static void main(String[] arguments) throws Exception {
        MqttConnectOptions options = new MqttConnectOptions();
        if (arguments.length > 0) {
            options.setSocketFactory(new NoDelaySocketFactory());
        }
        try (ServerSocket listener = new ServerSocket(1883, 1, InetAddress.getByName("127.0.0.1"))) {
            Thread broker = new Thread(() -> {
                try {
                    serve(listener.accept());
                    serve(listener.accept());
                } catch (IOException error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            broker.start();
            answer(options);
            answer(options);
            broker.join();
        }
        System.exit(0);
    }
}
