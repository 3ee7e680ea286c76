//! One end of a recorded case, with smoltcp's TCP on the device tap0.
//! `smoltcp-peer server|client nagle|nodelay ACK_DELAY_MS CONNECTIONS EXCHANGES STEP...`; see stack_cases.py.

use std::os::fd::AsRawFd;
use std::time::{SystemTime, UNIX_EPOCH};

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

const OURS: IpAddress = IpAddress::v4(10, 78, 0, 2);
const LINUX: IpAddress = IpAddress::v4(10, 78, 0, 1);
const PORT: u16 = 7000;
const FIRST_CLIENT_PORT: u16 = 50000;
const BUFFER: usize = 65535; // more than any exchange: a write never waits for room

/// The stack, and the sockets of all connections in their order.
struct Stack {
    device: TunTapInterface,
    interface: Interface,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
}

impl Stack {
    fn new() -> Stack {
        let mut device = TunTapInterface::new("tap0", Medium::Ethernet).expect("tap0");
        let mut config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 2]).into());
        config.random_seed = now_ns() as u64;
        let mut interface = Interface::new(config, &mut device, Instant::now());
        interface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(OURS, 24)).unwrap());
        Stack {
            device,
            interface,
            sockets: SocketSet::new(vec![]),
            handles: vec![],
        }
    }

    fn add_socket(&mut self, nagle: bool, ack_delay: Duration) {
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(nagle);
        socket.set_ack_delay(Some(ack_delay));
        self.handles.push(self.sockets.add(socket));
    }

    fn socket(&mut self, number: usize) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handles[number])
    }

    /// Take in what has arrived, and send what may be sent.
    fn poll(&mut self) {
        self.interface
            .poll(Instant::now(), &mut self.device, &mut self.sockets);
    }

    /// Run the stack until the program has what it waits for.
    fn until(&mut self, number: usize, mut done: impl FnMut(&mut Socket) -> bool) {
        loop {
            self.poll();
            if done(self.socket(number)) {
                return self.poll();
            }
            self.wait(Instant::now() + Duration::from_secs(1));
        }
    }

    /// Run the stack for so long.
    fn pause(&mut self, ms: u64) {
        let end = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < end {
            self.wait(end);
            self.poll();
        }
    }

    /// Sleep until a frame arrives, one of the stack's timers is due, or it is `latest`.
    fn wait(&mut self, latest: Instant) {
        let now = Instant::now();
        let timer = self
            .interface
            .poll_at(now, &self.sockets)
            .unwrap_or(latest)
            .min(latest);
        let left = if timer > now {
            timer - now
        } else {
            Duration::ZERO
        };
        wait(self.device.as_raw_fd(), Some(left)).expect("select");
    }

    /// All exchanges of one connection; returns its log of writes as JSON.
    fn converse(&mut self, number: usize, exchanges: usize, steps: &[(char, u64)]) -> String {
        let mut writes = vec![];
        let mut sent = 0;
        self.until(number, |socket| socket.may_send());
        for (kind, size) in steps.repeat(exchanges) {
            match kind {
                'w' => {
                    sent += size;
                    writes.push(format!("[{sent},{size},{}]", now_ns()));
                    let taken = self.socket(number).send_slice(&vec![b'x'; size as usize]);
                    assert_eq!(taken, Ok(size as usize));
                    self.poll();
                }
                'r' => {
                    let mut left = size as usize;
                    self.until(number, |socket| {
                        assert!(socket.may_recv(), "the other program has gone");
                        left -= socket
                            .recv(|data| (data.len().min(left), data.len().min(left)))
                            .unwrap();
                        left == 0
                    });
                }
                'p' => self.pause(size),
                _ => panic!("no such step: {kind}"),
            }
        }
        format!("[{}]", writes.join(","))
    }

    /// Close a connection, whichever end does so first, and wait until that is done.
    fn close(&mut self, number: usize, server: bool) {
        self.until(number, |socket| {
            if server {
                !socket.may_recv()
            } else {
                socket.send_queue() == 0
            }
        });
        self.socket(number).close();
        self.until(number, |socket| {
            matches!(socket.state(), State::Closed | State::TimeWait)
        });
    }
}

/// CLOCK_REALTIME, as in the capture.
fn now_ns() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (server, nagle) = (arguments[0] == "server", arguments[1] == "nagle");
    let ack_delay = Duration::from_millis(number(&arguments[2]));
    let (connections, exchanges) = (
        number(&arguments[3]) as usize,
        number(&arguments[4]) as usize,
    );
    let steps: Vec<(char, u64)> = arguments[5..]
        .iter()
        .map(|step| (step.chars().next().unwrap(), number(&step[1..])))
        .collect();

    let mut stack = Stack::new();
    for i in 0..connections {
        stack.add_socket(nagle, ack_delay);
        if server {
            stack.socket(i).listen(PORT).unwrap(); // a SYN goes to the first socket that still listens
        }
    }
    println!("ready");
    let mut logs = vec![];
    for i in 0..connections {
        let mut port = FIRST_CLIENT_PORT + i as u16;
        if !server {
            let handle = stack.handles[i];
            let socket = stack.sockets.get_mut::<Socket>(handle);
            socket
                .connect(stack.interface.context(), (LINUX, PORT), port)
                .unwrap();
        }
        stack.until(i, |socket| socket.may_send());
        if server {
            port = stack.socket(i).remote_endpoint().unwrap().port;
        }
        let writes = stack.converse(i, exchanges, &steps);
        stack.close(i, server);
        logs.push(format!("{{\"port\":{port},\"writes\":{writes}}}"));
    }
    stack.pause(100); // the last ACKs
    println!("[{}]", logs.join(","));
}
